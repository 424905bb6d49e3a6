"""Alembic's scripts: how the store's tables came to be what they are."""
