"""A node's own data: prepared, checked, and compared with another node's, by its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.unlabelled import OWN, OWN_OR, reads_own_labels

if TYPE_CHECKING:
    from fedlens.client.contract import FederationContract
    from fedlens.client.preparing.intake import Preparation
    from fedlens.client.preparing.report import NodeReport
    from fedlens.data.formats.formats import RecordSource

Paths = Path | str
NO_SECRET = b"\0" * 32
"""For a look at a source of which no store is kept."""


@dataclass(frozen=True)
class NodePreparation:
    """How an owner's records are read, and brought into the form of their federation.

    Attributes:
        format: of the source; empty: found by its files.
        label: column of the class, or of ``A|B`` each a class; empty: the usual one of the format.
        user: column of the user; likewise.
        owner: ``one`` (all records are one person's) or ``each`` (each is a person's of its own),
            where no column says.
        user_from_name: in place of a column, a regular expression that finds the user in a
            picture's path: its first group, or all that it matches.
        image: column or array of the pictures, or what columns of pixels are called before their
            number.
        sensitive: column of the sensitive attribute; empty: the one of its name.
        mapped: names of classes here to agreed ones, or to ``-`` to leave them out; ``|`` is every
            label of several classes.
        whole: take in records of validation and test parts too.
        each_frame: take each frame or page of a picture; else the first.
        secret: file of the node's own secret, made where it is not there; by default
            ``OUT.secret`` beside the store. This and what follows count for a store alone.
        owners_secret: file of the secret that owners share; with it a list of fingerprints is
            written.
        without: another node's fingerprints, whose users are left out.
        roster: file of all enrolled users' names, a line each.
        replace: put the new store in the place of one that is there.
        label_model: file of the label model by which records are named, where the federation agreed
            on one.
    """

    format: str = ""
    label: str = ""
    user: str = ""
    owner: str = ""
    user_from_name: str = ""
    image: str = ""
    sensitive: str = ""
    mapped: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    each_frame: bool = False
    secret: Paths | None = None
    owners_secret: Paths | None = None
    without: Paths | None = None
    roster: Paths | None = None
    replace: bool = False
    label_model: Paths | None = None

    def source(self, path: Paths, labels: str = OWN) -> RecordSource:
        """The records at a path, which need a label each where the contract's ``labels`` say so.

        Raises:
            FedlensError: there is nothing, or nothing that can be read.
        """
        from fedlens.data.formats.formats import EACH, ONE, open_source

        if self.owner not in ("", ONE, EACH):
            raise WrongUse(f"owner={self.owner!r}: give {ONE} or {EACH}, or leave it out")
        labelled = reads_own_labels(labels)
        if self.label and not labelled:
            raise WrongUse(
                f"--label {self.label}: your own labels are not read, as federation.toml says; "
                "leave it out"
            )
        return open_source(
            path,
            self.format,
            label=self.label,
            user=self.user,
            owner=self.owner,
            image=self.image,
            user_from_name=self.user_from_name,
            each_frame=self.each_frame,
            needs_label=labelled,
            partly=labels.startswith(OWN_OR),
        )

    def under(self, contract: FederationContract, secret: bytes) -> Preparation:
        """What a preparation goes by, under a federation's contract and a node's secret.

        Raises:
            IdentityError: the owners' secret cannot be read.
            LabelModelError: the label model cannot be read.
            WrongUse: it is not the one that was agreed on.
        """
        from fedlens.client.preparing.identities import read_secret
        from fedlens.client.preparing.intake import Preparation
        from fedlens.models.label_models import read_label_model

        return Preparation(
            contract=contract,
            secret=secret,
            mapped=dict(self.mapped),
            sensitive=self.sensitive,
            whole=self.whole,
            owners_secret=(
                None if self.owners_secret is None else read_secret(Path(self.owners_secret))
            ),
            without=None if self.without is None else Path(self.without),
            roster=None if self.roster is None else Path(self.roster),
            label_model=None if self.label_model is None else read_label_model(self.label_model),
        )


def prepare_node(
    source: Paths,
    out: Paths,
    federation: Paths,
    settings: NodePreparation | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> NodeReport:
    """Bring an owner's records into the form of ``federation.toml``, as a store for their node.

    What cannot be decoded is named, counted and left out here. Everything stays on the machine.

    Args:
        source: folder or file of records.
        out: a new folder for the store.
        federation: the contract's file.
        settings: how they are read; None: all as usual.
        progress: told how many records were looked at.

    Raises:
        FedlensError: what cannot be used, with the fix.
    """
    from fedlens.client.contract import read_contract
    from fedlens.client.preparing.identities import kept_secret
    from fedlens.client.preparing.prepare import prepare

    asked, target = settings or NodePreparation(), Path(out).expanduser()
    contract = read_contract(Path(federation).expanduser())  # before anything is made
    if contract.least_confidence and asked.roster is None:
        raise WrongUse(
            "--roster: least_confidence leaves records out by what they show, and who is enrolled "
            "must not depend on that; name all users in a file, a line each"
        )
    found = asked.source(source, contract.labels)
    target.parent.mkdir(parents=True, exist_ok=True)
    own = Path(asked.secret) if asked.secret else target.with_name(f"{target.name}.secret")
    wanted = asked.under(contract, kept_secret(own))
    return prepare(found, wanted, target, replace=asked.replace, told=progress or _nothing)


def check_node(
    path: Paths,
    federation: Paths | None = None,
    settings: NodePreparation | None = None,
    *,
    page: Paths | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[NodeReport, list[str]]:
    """What a prepared store holds and what is wrong with it; or what preparing a source would say.

    Args:
        path: a store, or a source of records.
        federation: the contract's file; a store has its own.
        settings: how records are read; None: all as usual.
        page: a file to write all of it to as one HTML page with pictures, for the owner alone.
        progress: told how many records were looked at.

    Returns:
        What there is, and faults with their fixes, none where all is well.

    Raises:
        FedlensError: it is neither, or nothing of it can be read.
    """
    from fedlens.client.contract import CONTRACT, read_contract
    from fedlens.client.node.store import is_store
    from fedlens.client.preparing.checking import store_faults
    from fedlens.client.preparing.prepare import look_through
    from fedlens.client.preparing.report import report_on

    where, asked = Path(path).expanduser(), settings or NodePreparation()
    contract = read_contract(Path(federation).expanduser()) if federation else None
    if is_store(where):
        report, faults = report_on(where), store_faults(where, contract)
    elif contract is None:
        raise WrongUse(f"{path}: is no store; to look through records name --federation FILE")
    else:
        found = asked.source(where, contract.labels)
        report = look_through(found, asked.under(contract, NO_SECRET), progress or _nothing)
        faults = report.faults()
    if page is not None:
        _write_page(
            Path(page), str(path), report, contract or read_contract(where / CONTRACT), faults
        )
    return report, faults


def _write_page(
    page: Path, title: str, report: NodeReport, contract: FederationContract, faults: list[str]
) -> None:
    from fedlens.client.preparing.page import owners_page
    from fedlens.foundation.files import write_durably

    content = owners_page(title, report, contract, faults)
    write_durably(page.expanduser(), content.encode(), private=True)


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
