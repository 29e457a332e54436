"""Runs a plan: its steps and subplans, and resumes it after an interruption."""
