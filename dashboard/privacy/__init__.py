"""For the privacy officer: whose privacy was spent by how much, what waits, and a statement."""
