"""What is only looked at: checkpoints, content and decisions. Nothing here changes a plan."""
