"""Accounts: who may sign in, what their role allows, and the log of what they did.

Passwords are kept as salted scrypt hashes, sessions as digests of their cookies: a copy of the
store admits no one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, get_args

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from fedlens.foundation.dates import today
from fedlens.store.checks import check_choice, require
from fedlens.store.errors import StoreError
from fedlens.store.projects import ensure_user
from fedlens.store.records import utc_now
from fedlens.store.rows import to_record
from fedlens.store.schema import UserTable
from fedlens.store.schema_team import AccountTable, LogTable, SignInTable
from fedlens.store.transactions import Transactions

Role = Literal["viewer", "annotator", "reviewer", "engineer", "officer", "admin"]
Permission = Literal["look", "annotate", "review", "manage", "approve", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    "viewer": frozenset({"look"}),
    "annotator": frozenset({"annotate"}),
    "reviewer": frozenset({"look", "annotate", "review"}),
    "engineer": frozenset({"look", "annotate", "review", "manage"}),
    "officer": frozenset({"look", "approve"}),
    "admin": frozenset({"look", "annotate", "review", "manage", "administer"}),
}
"""What each role may do. ``look``: see runs and samples. ``annotate``: label what is served.
``review``: see all answers, decide, export. ``manage``: make projects, draw more samples, ask
probes. ``approve``: say from which cost on an officer is asked, and decide what then waits; no role
that spends has it. ``administer``: accounts and the log. Annotators do not look: figures would sway
them."""

SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
_ITS_HOLDER = "access token"
"""Who the log says made the account of the access token's holder."""
_NAME = re.compile(r"\w(?:[\w .@+-]{0,58}[\w.@+-])?")
# 2^15 blocks of 8 x 128 bytes: 32 MiB and about a tenth of a second for each guess.
_COST, _BLOCK, _PARALLEL = 15, 8, 1
_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Member:
    """A person who may sign in. Key: ``name``."""

    user_id: int
    """Under which their answers are stored."""
    name: str
    role: Role
    disabled: bool = False

    def may(self, permission: Permission) -> bool:
        """Whether the role allows it; a disabled account may do nothing."""
        return not self.disabled and permission in PERMISSIONS[self.role]


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One thing that somebody did."""

    entry_id: int
    day: date
    actor: str
    action: str
    subject: str


class AccountMethods(Transactions):
    """Accounts, their sessions and the log."""

    def add_account(
        self, name: str, role: Role, password: str | None = None, *, actor: str
    ) -> Member:
        """Make an account; its answers go under the annotator of the same name.

        Raises:
            StoreError: the name is taken or cannot be one, no such role, a short password.
        """
        plain = bool(_NAME.fullmatch(name)) and unicodedata.normalize("NFKC", name) == name
        require(plain, "name", name, "give 1 to 60 letters, digits and . @ + - _")
        check_choice("role", role, Role)
        hashed = None if password is None else _hash(password)
        with self._writing() as session:
            _require_new(session, name)
            user_id = ensure_user(session, name)
            row = AccountTable(user_id=user_id, role=role, password=hashed, disabled=False)
            session.add(row)
            log_entry(session, actor, "account added", f"{name} ({role})")
            return Member(user_id=user_id, name=name, role=role)

    def accounts(self) -> list[Member]:
        """All accounts, by name."""
        with self._reading() as session:
            rows = select(AccountTable, UserTable.name).join(UserTable).order_by(UserTable.name)
            return [_account(row, name) for row, name in session.execute(rows)]

    def set_role(self, name: str, role: Role, *, actor: str) -> None:
        """Give an account another role, from its next request on.

        Raises:
            StoreError: no such role or account, or the last admin that may come in.
        """
        check_choice("role", role, Role)
        with self._writing() as session:
            row = _by_name(session, name)
            if role != "admin":
                _require_other_admin(session, row, name)
            row.role = role
            log_entry(session, actor, "role changed", f"{name} ({role})")

    def set_disabled(self, name: str, disabled: bool, *, actor: str) -> None:
        """Shut an account out, its sessions too, or let it in again; its answers stay.

        Raises:
            StoreError: no such account, or the last admin that may come in.
        """
        with self._writing() as session:
            row = _by_name(session, name)
            if disabled:
                _require_other_admin(session, row, name)
            row.disabled = disabled
            if disabled:
                session.execute(delete(SignInTable).where(SignInTable.user_id == row.user_id))
            log_entry(session, actor, "account disabled" if disabled else "account enabled", name)

    def set_password(self, name: str, password: str, *, actor: str) -> None:
        """Give an account another password and end its sessions."""
        hashed = _hash(password)
        with self._writing() as session:
            row = _by_name(session, name)
            row.password = hashed
            session.execute(delete(SignInTable).where(SignInTable.user_id == row.user_id))
            log_entry(session, actor, "password changed", name)

    def check_password(self, name: str, password: str) -> Member | None:
        """The account, if name and password are right and it is not disabled.

        As slow for an unknown name as for a known one.
        """
        with self._reading() as session:
            statement = select(AccountTable, UserTable.name).join(UserTable)
            found = session.execute(statement.where(UserTable.name == name)).first()
        kept = _NOBODY if found is None or found[0].password is None else found[0].password
        right = _matches(password, kept)
        if not right or found is None or found[0].disabled:
            return None
        return _account(found[0], found[1])

    def owner_account(self, name: str) -> Member:
        """The account that the access token opens, made as an admin's at first use."""
        with self._writing() as session:
            user_id = ensure_user(session, name)
            row = session.get(AccountTable, user_id)
            if row is None:
                row = AccountTable(user_id=user_id, role="admin", password=None, disabled=False)
                session.add(row)
                log_entry(session, _ITS_HOLDER, "account added", f"{name} (admin)")
                session.flush()
            return _account(row, name)

    def made_by_token(self, name: str) -> bool:
        """Whether an account was made for the holder of an access token, under whatever name.

        By the log, which nobody shortens; one whom an admin of that very name made counts as such.
        """
        made = {"actor": _ITS_HOLDER, "action": "account added", "subject": f"{name} (admin)"}
        with self._reading() as session:
            found = session.scalars(select(LogTable).filter_by(**made).limit(1)).first()
            return found is not None

    def sign_in(self, account: Member, seconds: float) -> str:
        """Open a session; give back its token, which is kept nowhere else."""
        token = secrets.token_urlsafe(32)
        now = utc_now()
        with self._writing() as session:
            session.execute(delete(SignInTable).where(SignInTable.expires_at <= now))
            end = now + timedelta(seconds=seconds)
            row = SignInTable(token_sha256=_digest(token), user_id=account.user_id, expires_at=end)
            session.add(row)
            log_entry(session, account.name, "signed in", "")
        return token

    def signed_in(self, token: str) -> Member | None:
        """Whose session a token opens; ``None`` for one that is forged, over or shut out."""
        with self._reading() as session:
            statement = (
                select(AccountTable, UserTable.name)
                .join(UserTable)
                .join(SignInTable, SignInTable.user_id == AccountTable.user_id)
                .where(SignInTable.token_sha256 == _digest(token))
                .where(SignInTable.expires_at > utc_now(), ~AccountTable.disabled)
            )
            found = session.execute(statement).first()
            return None if found is None else _account(found[0], found[1])

    def sign_out(self, token: str) -> None:
        """End a session."""
        with self._writing() as session:
            row = session.get(SignInTable, _digest(token))
            if row is not None:
                user = session.get(UserTable, row.user_id)
                session.delete(row)
                log_entry(session, "" if user is None else user.name, "signed out", "")

    def sign_out_everywhere(self, name: str, *, actor: str) -> None:
        """End all sessions of an account."""
        with self._writing() as session:
            row = _by_name(session, name)
            session.execute(delete(SignInTable).where(SignInTable.user_id == row.user_id))
            log_entry(session, actor, "signed out everywhere", name)

    def log_refusal(self, actor: str, name: str) -> None:
        """Note once a day that someone was refused under an account's name.

        Other names are not written down: people type passwords there by mistake.
        """
        with self._reading() as session:
            known = _accounts_named(session, name)
        if known:
            self.log_once(actor, "sign-in refused", name)

    def log_once(self, actor: str, action: str, subject: str = "") -> None:
        """Add to what has been done, unless the day has it already."""
        said = {"day": today(), "actor": actor, "action": action, "subject": subject}
        with self._reading() as session:
            there = session.scalars(select(LogTable).filter_by(**said).limit(1)).first()
        if there is None:
            self.log(actor, action, subject)

    def log(self, actor: str, action: str, subject: str = "") -> None:
        """Add to what has been done, by day."""
        with self._writing() as session:
            log_entry(session, actor, action, subject)

    def log_entries(self, limit: int = 500) -> list[LogEntry]:
        """What has been done, the last first."""
        with self._reading() as session:
            newest = select(LogTable).order_by(LogTable.entry_id.desc()).limit(limit)
            return [to_record(LogEntry, row) for row in session.scalars(newest)]


def _accounts_named(session: Session, name: str) -> list[AccountTable]:
    statement = select(AccountTable).join(UserTable).where(UserTable.name == name)
    return list(session.scalars(statement))


def _by_name(session: Session, name: str) -> AccountTable:
    found = _accounts_named(session, name)
    if not found:
        raise StoreError(f"name = {name!r}: the store has no such account")
    return found[0]


def _require_new(session: Session, name: str) -> None:
    """Names that differ in capitals alone are one name to the people who read them."""
    taken = session.scalars(select(UserTable.name).join(AccountTable))
    if name.casefold() in {one.casefold() for one in taken}:
        raise StoreError(f"name = {name!r}: there is such an account already")


def _require_other_admin(session: Session, row: AccountTable, name: str) -> None:
    """Two admins who shut each other out at once wait here for each other."""
    admins = select(AccountTable).where(AccountTable.role == "admin", ~AccountTable.disabled)
    locked = session.scalars(
        admins.order_by(AccountTable.user_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if {one.user_id for one in locked} == {row.user_id}:
        raise StoreError(f"name = {name!r}: the last admin; make another one first")


def _account(row: AccountTable, name: str) -> Member:
    role = next((one for one in ROLES if one == row.role), None)
    if role is None:
        raise StoreError(f"account {name!r} has the role {row.role!r}, which there is not")
    return Member(user_id=row.user_id, name=name, role=role, disabled=row.disabled)


def log_entry(session: Session, actor: str, action: str, subject: str) -> None:
    """Add to what people did, in a transaction of theirs."""
    session.add(LogTable(day=today(), actor=actor, action=action, subject=subject))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _hash(password: str) -> str:
    fits = SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD
    if not fits:  # the value itself stays out of the message
        raise StoreError(
            f"password of {len(password)} characters cannot be used: give {SHORTEST_PASSWORD} to "
            f"{LONGEST_PASSWORD}"
        )
    salt = secrets.token_bytes(16)
    parts = (salt, _scrypt(password, salt, _COST, _BLOCK, _PARALLEL))
    encoded = "$".join(base64.b64encode(part).decode() for part in parts)
    return f"scrypt${_COST}${_BLOCK}${_PARALLEL}${encoded}"


def _matches(password: str, kept: str) -> bool:
    _, cost, block, parallel, salt, wanted = kept.split("$")
    found = _scrypt(
        password[:LONGEST_PASSWORD], base64.b64decode(salt), int(cost), int(block), int(parallel)
    )
    return hmac.compare_digest(found, base64.b64decode(wanted))


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "replace"),
        salt=salt,
        n=2**cost,
        r=block,
        p=parallel,
        maxmem=_MEMORY,
        dklen=32,
    )


_NOBODY = f"scrypt${_COST}${_BLOCK}${_PARALLEL}${'A' * 22}==${'A' * 43}="
"""A hash that no password has."""
