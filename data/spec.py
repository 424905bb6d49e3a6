"""What tells one data set from another, in one place.

A data set, a format of records or a source of private data of another package is a `DatasetSpec`
behind an entry point in ``fedlens.datasets``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedlens.data.dataset import Dataset
from fedlens.data.formats.records import SourceFormat

if TYPE_CHECKING:
    from fedlens.privatizers.private_data import Split

KINDS = ("affine", "flips", "none")


@dataclass(frozen=True)
class Augmentation:
    """Which changes keep the meaning of a data set's images, and how far they go.

    Raises:
        ValueError: naming the setting that cannot be used.
    """

    kind: str = "affine"
    """``affine``: random rotation, scale, shear and shift. ``flips``: mirror images, left to
    right. ``none``."""
    rotation: float = 0.2
    """Most radians of rotation, either way."""
    scale: float = 0.12
    """Most relative change of the size, in height and width apart."""
    shear: float = 0.2
    """Most horizontal shear."""
    shift: float = 0.15
    """Most displacement, as a share of half the image's side."""
    mixing: float = 0.5
    """Most weight of the second image in a mixture of two; 0 for no mixtures."""
    moving: float = 0.0
    """Most radians, relative scale, shear and shift by which an image is moved beside its kind's
    change, and samples are moved that are not changed otherwise; 0 for none. For pictures that
    stand straight and in the middle, and bear little."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: choose one of {', '.join(KINDS)}")
        for name, value in asdict(self).items():
            if name != "kind" and not 0 <= value < 1:
                raise ValueError(f"{name}={value!r}: give a number in [0, 1)")


@dataclass(frozen=True)
class Distortion:
    """Which changes need not keep what an image shows, and how strong they are.

    Raises:
        ValueError: naming the setting that cannot be used.
    """

    shading: float = 0.0
    """Most standard deviation of the logarithm of a smooth factor on pixels; 0 for none."""
    patching: float = 0.0
    """Share of images of which a smooth region is another image's; 0 for none."""
    warping: float = 0.0
    """Most standard deviation, about, of how far a smooth field moves a pixel along each axis, as a
    share of the image's side; 0 for none."""
    scenes: float = 0.0
    """Share of *colour* images whose place a made-up scene takes, one of shapes that lie over one
    another; 0 for none. Samples of photographs are too alike to show what one may look like."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name}={value!r}: give a number in [0, 1]")


Formula = Literal["", "coordinate", "ink", "strokes"]
"""How an attacker computes a private attribute from a record; empty where no way is known."""


@dataclass(frozen=True)
class DatasetSpec:
    """What a data set can provide, and all that is chosen for it; never from anybody's data.

    One provides at least one of three things. **Records**, one at a time (``format``): a node's
    store is prepared from them, and the other two are made of them where nothing else says how. **A
    whole data set** for a simulation (``load``). **Three parts with a private attribute** for
    filters and attackers on them (``private``).

    Attributes:
        title: as people read it.
        load: gives the data of what stands behind the colon of its name (empty: nothing), and of
            the folder to look into alone, or None for the usual places.
        by_path: whether ``load`` takes a path.
        augmentation: changes that keep the meaning of its images; by default, for any pictures,
            small moves alone.
        distortion: further changes, for students that an annotator teaches. It labels what came of
            them, so that the defaults suit pictures of any kind.
        student_images: how many times as many images such students learn from. Samples cost no
            privacy, only seconds.
        published: its key in the table of published figures; empty where there are none.
        public: whether anybody may look at its records. Others' somebody brought: they are records
            of people, in no run's ledger.
        format: how its records are read.
        attribution: whom to credit, where it is made of records.
        private: gives the three parts of its full name, what stands behind its colon, the folder of
            data files (or None) and a seed.
        formula: how its private attribute can be computed.
        columns: options that a split into three parts takes by default, such as ``label``.
    """

    title: str
    load: Callable[[str, Path | None], Dataset] | None = None
    by_path: bool = False
    augmentation: Augmentation = Augmentation("none", moving=0.1)
    distortion: Distortion = Distortion(warping=0.1, patching=0.5, scenes=0.5)
    student_images: int = 1
    published: str = ""
    public: bool = False
    format: SourceFormat | None = None
    attribution: str = ""
    private: Callable[[str, str, Path | None, int], Split] | None = None
    formula: Formula = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_path(self) -> bool:
        """Whether a path stands behind its name: ``npz:PATH``."""
        return self.by_path or self.format is not None
