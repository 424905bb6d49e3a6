"""Bayesian differential privacy: estimates and sound bounds from realised norms."""
