"""Attacks on filters: targets, effort, scores, and the attackers that know the filter."""
