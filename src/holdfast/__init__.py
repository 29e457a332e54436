"""Holdfast runs plans in private sandboxes, checkpoints every write, and takes you back to any of them, exactly."""
