"""A node's own data: prepared, checked, and compared with another node's, by its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.client.contract import FederationContract
    from fedlens.client.preparing.intake import Preparation
    from fedlens.client.preparing.report import NodeReport
    from fedlens.data.formats.formats import RecordSource

Paths = Path | str
NO_SECRET = b"\0" * 32
"""For a look at a source of which no store is kept."""


def prepare_node(
    source: Paths,
    out: Paths,
    federation: Paths,
    *,
    format: str = "",  # noqa: A002 - the flag's own name
    label: str = "",
    user: str = "",
    owner: str = "",
    image: str = "",
    sensitive: str = "",
    mapped: Mapping[str, str] | None = None,
    whole: bool = False,
    secret: Paths | None = None,
    owners_secret: Paths | None = None,
    without: Paths | None = None,
    roster: Paths | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> NodeReport:
    """Bring an owner's records into the form of ``federation.toml``, as a store for their node.

    What cannot be decoded is named, counted and left out here. Everything stays on the machine.

    Args:
        source: folder or file of records.
        out: a new folder for the store.
        federation: the contract's file.
        format: of the source; empty: found by its files.
        label: column of the class; empty: the usual one of the format.
        user: column of the user; likewise.
        owner: ``one`` (all records are one person's) or ``each`` (each is a person's of its own),
            where no column says.
        image: column or array of the pictures.
        sensitive: column of the sensitive attribute; empty: the one of its name.
        mapped: names of classes here to agreed ones, or to ``-`` to leave them out.
        whole: take in records of test parts too.
        secret: file of the node's own secret, made where it is not there; by default
            ``OUT.secret`` beside the store.
        owners_secret: file of the secret that owners share; with it a list of fingerprints is
            written.
        without: another node's fingerprints, whose users are left out.
        roster: file of all enrolled users' names, a line each.
        replace: put the new store in the place of one that is there.
        progress: told how many records were looked at.

    Raises:
        FedlensError: what cannot be used, with the mend.
    """
    from fedlens.client.contract import read_contract
    from fedlens.client.preparing.identities import kept_secret
    from fedlens.client.preparing.prepare import prepare

    target = Path(out).expanduser()
    read_contract(Path(federation).expanduser())  # before anything is made
    found = _source(source, format, label, user, owner, image)
    target.parent.mkdir(parents=True, exist_ok=True)
    key = kept_secret(Path(secret) if secret else target.with_name(f"{target.name}.secret"))
    wanted = _preparation(federation, key, mapped, sensitive, whole, owners_secret, without, roster)
    return prepare(found, wanted, target, replace=replace, told=progress or _nothing)


def check_node(
    path: Paths,
    federation: Paths | None = None,
    *,
    format: str = "",  # noqa: A002 - the flag's own name
    label: str = "",
    user: str = "",
    owner: str = "",
    image: str = "",
    sensitive: str = "",
    mapped: Mapping[str, str] | None = None,
    whole: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[NodeReport, list[str]]:
    """What a prepared store holds and what is wrong with it; or what preparing a source would say.

    Args:
        path: a store, or a source of records.
        federation: the contract's file; a store has its own.
        format: as in `prepare_node`, like all that follow.
        label: column of the class.
        user: column of the user.
        owner: ``one`` or ``each``.
        image: column or array of the pictures.
        sensitive: column of the sensitive attribute.
        mapped: names of classes here to agreed ones.
        whole: take in records of test parts too.
        progress: told how many records were looked at.

    Returns:
        What there is, and faults with their mends, none where all is well.

    Raises:
        FedlensError: it is neither, or nothing of it can be read.
    """
    from fedlens.client.contract import read_contract
    from fedlens.client.node.store import is_store
    from fedlens.client.preparing.checking import store_faults
    from fedlens.client.preparing.prepare import look_through
    from fedlens.client.preparing.report import report_on

    where = Path(path).expanduser()
    if is_store(where):
        contract = read_contract(Path(federation)) if federation else None
        return report_on(where), store_faults(where, contract)
    if federation is None:
        raise WrongUse(f"{path}: is no store; to look through records name --federation FILE")
    found = _source(where, format, label, user, owner, image)
    wanted = _preparation(federation, NO_SECRET, mapped, sensitive, whole, None, None, None)
    report = look_through(found, wanted, progress or _nothing)
    return report, report.faults()


def shared_users(mine: Paths, other: Paths) -> int:
    """How many users two lists of fingerprints share.

    Args:
        mine: a store, or its ``fingerprints.bin``.
        other: the other node's ``fingerprints.bin``, made under the same owners' secret.

    Raises:
        FedlensError: one is no list of fingerprints.
    """
    from fedlens.client.preparing.identities import shared_fingerprints
    from fedlens.client.preparing.intake import FINGERPRINTS

    lists = [Path(one) / FINGERPRINTS if Path(one).is_dir() else Path(one) for one in (mine, other)]
    return sum(1 for _ in shared_fingerprints(*lists))


def _source(path: Paths, kind: str, label: str, user: str, owner: str, image: str) -> RecordSource:
    from fedlens.data.formats.formats import EACH, ONE, open_source

    if owner not in ("", ONE, EACH):
        raise WrongUse(f"owner={owner!r}: give {ONE} or {EACH}, or leave it out")
    return open_source(path, kind, label=label, user=user, owner=owner, image=image)


def _preparation(
    federation: Paths, key: bytes, mapped: Mapping[str, str] | None, sensitive: str, whole: bool,
    owners_secret: Paths | None, without: Paths | None, roster: Paths | None,
) -> Preparation:  # fmt: skip
    from fedlens.client.contract import read_contract
    from fedlens.client.preparing.identities import read_secret
    from fedlens.client.preparing.intake import Preparation

    contract: FederationContract = read_contract(Path(federation).expanduser())
    return Preparation(
        contract=contract,
        secret=key,
        mapped=dict(mapped or {}),
        sensitive=sensitive,
        whole=whole,
        owners_secret=None if owners_secret is None else read_secret(Path(owners_secret)),
        without=None if without is None else Path(without),
        roster=None if roster is None else Path(roster),
    )


def _nothing(done: int) -> None:
    """Where progress is told that no one asks for."""


def secret_file(path: Paths) -> None:
    """Make a secret for owners to share, in a file that its owner alone may read.

    Raises:
        FedlensError: it cannot be made, or something else is there.
    """
    from fedlens.client.preparing.identities import kept_secret

    kept_secret(Path(path))


def as_pairs(texts: Iterable[str]) -> dict[str, str]:
    """``OWN=AGREED`` texts as a map.

    Raises:
        WrongUse: one is none.
    """
    from fedlens.client.preparing.labels import parse_map

    return parse_map(texts)
