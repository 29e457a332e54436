"""CheckpointService and what it decides by: groups over all resources, retention, references, differences."""
