"""Filters that only studies train."""
