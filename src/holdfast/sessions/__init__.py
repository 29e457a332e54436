"""Sessions: what an agent, or a person, does in a real folder; recorded call by call, and undone by merging."""
