"""What a directory holds, found by scanning only what changed."""
