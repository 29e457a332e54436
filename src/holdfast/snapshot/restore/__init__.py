"""Restores a directory to exactly a stored state; an interrupted restore can be run again."""
