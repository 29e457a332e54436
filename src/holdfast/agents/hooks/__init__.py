"""What agents say through their hooks, and how they are answered: one neutral form, and an adapter for each agent."""
