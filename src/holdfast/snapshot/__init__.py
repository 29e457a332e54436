"""Directories as values: scanned into content-addressed states, compared, and restored exactly."""
