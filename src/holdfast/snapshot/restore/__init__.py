"""Turning a directory into a stored state, exactly, and so that it may be interrupted."""
