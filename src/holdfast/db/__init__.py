"""The records: plans, decisions, checkpoints, operations and leases, in SQLite or PostgreSQL."""

from __future__ import annotations
