"""The content store: objects named by their digests, in one SQLite file, and the states made of them."""
