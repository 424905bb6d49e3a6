"""Run by Alembic for each upgrade, over the connection and inside the transaction it is given."""

from __future__ import annotations

from alembic import context

from fedlens.store.schema import Base
from fedlens.store.upgrades import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
