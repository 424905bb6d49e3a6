"""Data sets that only studies use."""
