"""The decisions of a plan: as a tree, one explained, one corrected."""
