"""The tamper-evident record of what was spent, alone and over a population."""
