"""The resident process of one project folder, and how hooks reach it."""
