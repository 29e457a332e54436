"""The last import of the process from which `warm.py` forks.

Measuring begins with a look at the stack, for which `inspect` finds out the file of every imported module. It remembers
them, so this is done once here instead of in each fork, where it would take several times as long as most commands.
"""

from __future__ import annotations

import inspect

inspect.stack()
