"""What these tests start is not measured: the stories start the same commands, and measuring each takes minutes."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
