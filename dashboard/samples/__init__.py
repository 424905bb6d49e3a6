"""Samples on the screen: pictures, filters, order, details, tags."""
