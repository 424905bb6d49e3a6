"""What the owners of a federation's data agreed on: ``federation.toml``, the same file at each.

Nodes bring their data into its form and refuse what it does not allow; the server names it in the
provenance of its runs. It holds nothing of anybody's data.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fedlens.client.messages import Natural
from fedlens.client.users.protocol import NodeDataError
from fedlens.foundation.names import NAME_RULE, is_plain_name
from fedlens.foundation.toml import parse_toml
from fedlens.foundation.unlabelled import NONE, OWN, UNLABELLED, label_model_in
from fedlens.models.shapes import GOOD_SIDES, SIDES, ImageShape

MOST_CLASSES = 1000
MOST_BYTES = 2**20
PREFIX = "federation"
"""What ``data.name`` is, or begins with where a contract's path follows."""
CONTRACT = "federation.toml"
"""A contract's file."""


class ContractError(NodeDataError):
    """A federation.toml that cannot be used, or data that is not in its form."""


def _name(value: str) -> str:
    if not is_plain_name(value):
        raise ValueError(NAME_RULE)
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise ValueError(f"{twice!r} is there twice: name each once")
    return values


def _side(value: int) -> int:
    if value not in SIDES:
        raise ValueError(f"give {GOOD_SIDES}")
    return value


Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[tuple[Name, ...], BeforeValidator(tuple), AfterValidator(_distinct)]


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class ImageForm(_Table):
    """``[image]``: what every picture is brought to."""

    side: Annotated[int, AfterValidator(_side)] = 32
    """Pixels of a side of the square: a multiple of 4 from 16 to 64, or of 8 up to 128. Pictures
    are cut to their middle square and scaled."""
    colour: bool = False
    """Three channels, red, green and blue, in place of one of grey."""


class HiddenAttribute(_Table):
    """``[sensitive]``: what a privatizer hides, known of each record; left out where nothing is."""

    attribute: Name
    """Its name."""
    values: Annotated[Names, Field(min_length=2, max_length=100)]
    """Its values, in the order of their numbers."""


class FederationContract(_Table):
    """A federation's contract; every owner has the same file."""

    version: Literal[1] = 1
    """Of this layout."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """The federation's name, which runs are stored under: letters, digits, ``.``, ``_``, ``-``."""
    classes: Annotated[Names, Field(min_length=1, max_length=MOST_CLASSES)]
    """Names of the classes, in the order of their numbers; left out with ``labels = "none"``."""
    labels: Annotated[str, Field(pattern=r"^(own|(own-or-)?(none|model:[0-9a-f]{64}))$")] = OWN
    """What records are labelled by: ``own``, their owners' labels; ``none``, nothing; or
    ``model:SHA256``, the label model of that digest, by which each owner's machine names them.
    ``own-or-none`` and ``own-or-model:SHA256``: their owners' labels where they have some, and this
    where they have none."""
    least_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With a label model: least probability of the name that it gives a record. Records that it is
    less sure of are left out."""
    unit: Literal["user", "record"] = "user"
    """What is protected: whole users, with noise of the server's, or records, with the nodes'."""
    tasks: Names = ()
    """Kinds of task that nodes answer, such as ``["card", "frozen", "focused", "annotator"]``; none
    named: all."""
    records_per_user: Natural = 32
    """Records of a user that count at most; 0 leaves it to runs and nodes."""
    least_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    """z below which nodes refuse a request."""
    largest_sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """q above which nodes refuse a request."""
    image: ImageForm = ImageForm()
    sensitive: HiddenAttribute | None = None
    declared: dict[Name, Annotated[Names, Field(min_length=1, max_length=100)]] = {}
    """``[declared]``: public attributes of users with their values, for slices."""

    @model_validator(mode="before")
    @classmethod
    def _no_labels_have_no_classes(cls, tree: Any) -> Any:
        if not isinstance(tree, dict) or tree.get("labels") != NONE:
            return tree
        if "classes" in tree:
            raise ValueError("labels = 'none' has no classes: leave classes out")
        return {**tree, "classes": [UNLABELLED]}

    @model_validator(mode="after")
    def _only_a_model_is_unsure(self) -> FederationContract:
        if self.least_confidence and not self.label_model:
            raise ValueError("least_confidence is of a label model in labels alone: leave it out")
        return self

    @model_validator(mode="after")
    def _can_be_met_by_a_run(self) -> FederationContract:
        if self.label_model and self.unit == "record":
            raise ValueError("a label model in labels is of unit = 'user' alone: take that")
        return self

    @property
    def unlabelled(self) -> bool:
        """Whether no record has a label; networks see one class, which is none."""
        return self.labels == NONE

    @property
    def label_model(self) -> str:
        """SHA-256 (hex) of the label model by which records are named; empty for none."""
        return label_model_in(self.labels)

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of an image."""
        return (3 if self.image.colour else 1), self.image.side, self.image.side

    def digest(self) -> str:
        """SHA-256 (hex) of what is agreed, whatever the file's blanks, comments and order."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_toml(self) -> str:
        """As TOML that `parse_contract` reads back equal."""
        unsaid = {"classes"} if self.unlabelled else set()
        return _toml_of(self.model_dump(mode="json", exclude_none=True, exclude=unsaid))


def read_contract(path: Path) -> FederationContract:
    """The contract in a file.

    Raises:
        ContractError: it is missing, is not TOML, or holds something that cannot be; the message
            names the key and the fix.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ContractError(f"{path}: is over 1 MiB; a contract is a page of TOML")
        return parse_contract(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ContractError(
            f"{path}: cannot be read ({error.strerror}); name the federation.toml that the owners "
            "agreed on"
        ) from None
    except UnicodeDecodeError:
        raise ContractError(f"{path}: is no text in UTF-8; write it anew") from None


def parse_contract(text: str, where: str) -> FederationContract:
    """The contract in TOML text; ``where`` it stands is named in errors.

    Raises:
        ContractError: as above.
    """
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"{where}: is not TOML: {error}") from None
    try:
        return FederationContract.model_validate(tree)
    except ValidationError as error:
        raise ContractError(f"{where}: {_wrong(error.errors()[0])}") from None


def _wrong(found: Any) -> str:
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return f"{key} is no key of a contract; see the page on providing data"
    if found["type"] == "missing":
        return f"lacks {key}"
    said = str(found["msg"]).removeprefix("Value error, ")
    if not key:
        return said
    return f"{key} = {found['input']!r} cannot be used: {said[:1].lower()}{said[1:]}"


def _toml_of(tree: dict[str, object]) -> str:
    """Plain TOML of a contract: numbers, truth values, texts, lists of texts, tables of these."""

    def said(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = [
        f"{said(key)} = {said(value)}" for key, value in tree.items() if type(value) is not dict
    ]
    for name, table in tree.items():
        if isinstance(table, dict):
            lines += [f"[{said(name)}]", *(f"{said(k)} = {said(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"
