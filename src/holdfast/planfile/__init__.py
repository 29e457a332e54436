"""Plan files: makes a draft of a plan from YAML, or from the same values in code.

Errors name the place, a line and a column or the path of a value, and what was expected there. Nothing is imported
here: the plan of ``holdfast run`` needs neither YAML nor pydantic, which take longer to import than all else.
"""
