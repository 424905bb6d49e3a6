"""Views of the list of runs that somebody gave a name, for all who look at the store."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select

from fedlens.store.checks import require
from fedlens.store.rows import insert_or_replace, to_record
from fedlens.store.schema_findings import SavedViewTable
from fedlens.store.transactions import Transactions

LONGEST_NAME = 60
LONGEST_ADDRESS = 1000
MOST_VIEWS = 200


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """A search with its filters and its order, under a name."""

    name: str
    address: str
    """The parameters of the page's address that show it, such as ``status=Finished``."""
    author: str


class SavedViewMethods(Transactions):
    """Saved views."""

    def save_view(self, name: str, address: str, *, author: str) -> None:
        """Keep a view under a name, in place of one that has the name already.

        Raises:
            StoreError: the name is empty, or either is too long, or there are too many views.
        """
        name = name.strip()
        require(0 < len(name) <= LONGEST_NAME, "name", name, f"give 1 to {LONGEST_NAME} characters")
        short = len(address) <= LONGEST_ADDRESS
        require(short, "address", len(address), f"at most {LONGEST_ADDRESS:,} characters are kept")
        with self._writing() as session:
            names = set(session.scalars(select(SavedViewTable.name)))
            room = name in names or len(names) < MOST_VIEWS
            require(room, "name", name, f"delete another view: {MOST_VIEWS} are kept")
            values = {"name": name, "address": address, "author": author}
            insert_or_replace(session, SavedViewTable, values)

    def delete_view(self, name: str) -> None:
        """Keep it no longer; nothing changes where no view has the name."""
        with self._writing() as session:
            session.execute(delete(SavedViewTable).where(SavedViewTable.name == name))

    def saved_views(self) -> list[SavedView]:
        """All of them, by name."""
        with self._reading() as session:
            rows = select(SavedViewTable).order_by(SavedViewTable.name)
            return [to_record(SavedView, row) for row in session.scalars(rows)]
