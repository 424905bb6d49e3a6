"""What a run learns from its releases, task by task."""
