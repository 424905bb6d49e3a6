"""The study: what a run's samples are worth, measured the same way for every row of a table."""
