"""One script a revision."""
