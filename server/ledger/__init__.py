"""What a run has spent, what it plans to spend, and the prior runs that it pays for."""
