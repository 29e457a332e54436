"""What a directory holds, found by looking only where something changed."""
