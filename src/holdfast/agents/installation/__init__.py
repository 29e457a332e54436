"""Writing our hooks into the configuration of agents, taking them out again, and finding out whether they run."""
