"""Running a plan: its steps, its subplans, and going on after it was cut short."""
