"""The guard of a folder: a small resident process that records what agents and people do there."""
