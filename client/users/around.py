"""Users around users: what those show who see the same people in another way."""

from __future__ import annotations

from dataclasses import dataclass

from fedlens.client.users.protocol import LocalUsers, sensitive_of


@dataclass(frozen=True, eq=False)
class UsersAround:
    """The same users at the same positions; a subclass says what each of them holds.

    No sensitive attribute is passed on, so that one that is to stay behind cannot slip through.
    """

    users: LocalUsers

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""
        return self.users.shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.users.classes

    @property
    def partition(self) -> int:
        """The node's position among the nodes."""
        return self.users.partition

    def __len__(self) -> int:
        """Number of users."""
        return len(self.users)

    def user_id(self, position: int) -> int:
        """The user's own number."""
        return self.users.user_id(position)

    def held(self, position: int) -> int:
        """How many records the user holds."""
        return self.users.held(position)


@dataclass(frozen=True, eq=False)
class SensitiveUsersAround(UsersAround):
    """The same, whose records come with their sensitive values."""

    @property
    def sensitive_attribute(self) -> str:
        """The sensitive attribute's name; empty for none."""
        return sensitive_of(self.users)[0]

    @property
    def sensitive_classes(self) -> int:
        """The sensitive attribute's number of classes."""
        return sensitive_of(self.users)[1]
