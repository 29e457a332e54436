"""Bringing a result into the real files, all of it or nothing, and taking it out again."""
