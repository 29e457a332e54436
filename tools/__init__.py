"""What the project makes with programs of its own."""
