"""Sandboxes: private copies of real resources behind one small protocol."""
