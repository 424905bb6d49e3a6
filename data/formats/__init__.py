"""Readers of records one at a time, whatever the format; nodes and simulations share them."""
