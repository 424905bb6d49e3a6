"""Measures of samples and of what attackers read."""
