"""The picker of ``holdfast log -i``: a person chooses a moment, sees what it changed, and says what to do with it.

``state.py`` is what is chosen, and what each key makes of it; ``drawing.py`` turns that into lines; ``raw_terminal.py``
reads keys and shows the lines; ``picking.py`` puts them together.
"""
