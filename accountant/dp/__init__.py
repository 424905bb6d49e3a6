"""Differential privacy: events priced by moments, privacy loss and exact inversion."""
