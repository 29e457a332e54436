"""Plans as a whole: created, found and listed, deleted."""
