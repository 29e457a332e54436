"""The command line: parse, one call, show."""
