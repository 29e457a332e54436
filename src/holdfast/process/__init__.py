"""The processes of steps, supervised and confined; none of them outlives its step."""
