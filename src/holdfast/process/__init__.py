"""Processes of steps: supervised, confined, and with nothing that outlives them."""
