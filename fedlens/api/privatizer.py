"""Filters that devices run before data leaves them: fit, measure, load, export.

Fitting and measuring use raw records without a budget and are simulations; a federation that fits
its filter under differential privacy is a run (`fedlens.simulate` with a ``privatizer`` section),
whose filter `load` takes as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedlens.api.attacks import AttackSettings, attack
from fedlens.foundation.errors import WrongUse
from fedlens.privatizers.channels import Encoder, radius_of_codes
from fedlens.privatizers.classifiers import choices_of
from fedlens.privatizers.export import (
    Exported,
    Kind,
    example_inputs,
    export_filter,
    latency_ms,
    release,
)
from fedlens.privatizers.export import load_filter as load_exported
from fedlens.privatizers.fitting import FitConfig, FittedFilter
from fedlens.privatizers.fitting import fit_filter as fit

if TYPE_CHECKING:
    from fedlens.api.filtering import Applied
    from fedlens.privatizers.attacks.claims import Claims

__all__ = [
    "SUFFIXES",
    "AttackSettings",
    "Export",
    "Filter",
    "FitConfig",
    "FittedFilter",
    "apply",
    "attack",
    "export",
    "fit",
    "load",
]

SUFFIXES: Mapping[Kind, str] = {"torch": ".pt2", "onnx": ".onnx"}
"""Kinds of files that `export` writes, and how their names end."""


@dataclass(frozen=True)
class Filter:
    """A trained filter.

    Attributes:
        network: in evaluation mode; takes records, noise and, where it has any, opt-in bits.
        shape: of one record.
        unit: what an entry of a series is multiplied with to be in the units it was read in.
        utility_names: what the classes of the utility are called, in the order of a service's
            answers; empty where they have no names.
        sensitive_names: the same of the sensitive attribute.
        claims: what its file claims of it; None where it claims nothing.
    """

    network: nn.Module
    shape: tuple[int, ...]
    unit: float = 1.0
    utility_names: tuple[str, ...] = ()
    sensitive_names: tuple[str, ...] = ()
    claims: Claims | None = None

    @property
    def choices(self) -> int:
        """How many opt-in bits it takes."""
        return choices_of(self.network)

    def release(
        self, records: Tensor, source: torch.Generator, choice: Tensor | None = None
    ) -> Tensor:
        """Filtered records, each with fresh noise.

        Args:
            records: float32 [n, ...], images in [-1, 1].
            source: of the noise; seed it from the system where anybody is to be protected.
            choice: float32 [n, choices], 1 where the record's owner wants the attribute hidden.
        """
        return release(self.network, records, source, choice)


@dataclass(frozen=True)
class Export:
    """A filter as a file that was compared with the filter itself.

    Attributes:
        file: what was written, and how far it is off at most.
        choices: opt-in bits that it takes.
        latency_ms: median time of one record on one CPU thread.
        utility_names: what the classes of the utility are called, in order.
        sensitive_names: the same of the sensitive attribute.
        encoder: file of the clean code, from which a device makes noise that near records share;
            None where codes have no bound.
    """

    file: Exported
    choices: int
    latency_ms: float
    utility_names: tuple[str, ...] = ()
    sensitive_names: tuple[str, ...] = ()
    encoder: Exported | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "path": str(self.file.path),
            "kind": self.file.kind,
            "bytes": self.file.size,
            "choices": self.choices,
            "difference": self.file.difference,
            "latency_ms_p50": self.latency_ms,
            "utility_names": list(self.utility_names),
            "sensitive_names": list(self.sensitive_names),
            "encoder": None if self.encoder is None else str(self.encoder.path),
        }


def load(path: Path | str) -> Filter:
    """The filter of a file (of ``filters/`` of a curve or study) or of a run's directory.

    Raises:
        FedlensError: there is none.
        OSError: the file cannot be read.
    """
    place = Path(path)
    if place.is_dir():
        _check_run(place)
        from fedlens.simulations.run_artifacts import kept_run_filter

        return Filter(*kept_run_filter(place))
    if not place.exists():
        raise WrongUse(
            f"filter {place}: there is no such file; give one of the folder filters/ of a curve or "
            "study, or the folder of a run that trained one"
        )
    from fedlens.privatizers.attacks.filter_files import load_claims, load_filter, load_units

    units, claims = load_units(place), load_claims(place)
    names = units.utility_names, units.sensitive_names
    return Filter(*load_filter(place), units.unit, *names, claims)


def _require_sound(loaded: Filter, *, unsafe: bool) -> None:
    """Refuse a filter without noise, or beyond its bound, unless that is meant."""
    from fedlens.privatizers.attacks.structure import require_sound

    if not unsafe:
        require_sound(loaded.network, loaded.shape, loaded.claims)


def _check_run(folder: Path) -> None:
    """Refuse a folder that is no run's, saying which files to give.

    Raises:
        WrongUse: it has no configuration of a run.
    """
    if (folder / "config.toml").is_file():
        return
    inner = folder if folder.name == "filters" else folder / "filters"
    kept = sorted(path.name for path in inner.glob("*.safetensors"))
    if kept:
        raise WrongUse(
            f"filter {folder}: is the folder of a curve or study; give one of its files, such as "
            f"{inner / kept[0]}"
        )
    raise WrongUse(
        f"filter {folder}: is neither a run (it has no config.toml) nor a curve (no "
        "filters/*.safetensors); train one with `fedlens privatizer curve` or a run with "
        "privatizer.kind"
    )


def export(
    path: Path | str,
    *,
    kind: Kind | None = None,
    out: Path | str | None = None,
    unsafe: bool = False,
) -> Export:
    """Write a filter as a file that devices run, its noise an input.

    A file that does not do what the filter does is refused and leaves nothing behind. Where codes
    are bounded, a second file makes the clean code of a record, for the device alone: noise that
    near records share is a function of it (`fedlens.privatizers.noise_field`).

    Args:
        path: what `load` takes.
        kind: ``torch`` (torch.export) or ``onnx`` (needs ``fedlens[export]``); by default what
            ``out`` ends in says, else ``torch``.
        out: the file; by default beside or in ``path``, with the kind's suffix.
        unsafe: also a filter without noise, or beyond the bound that it claims.

    Raises:
        WrongUse: there is no such kind, or ``out`` ends as the other kind's files do.
        FedlensError: the filter cannot be loaded or exported.
    """
    chosen = _kind(kind, out)
    place, loaded = Path(path), load(path)
    _require_sound(loaded, unsafe=unsafe)
    beside = place / "filter" if place.is_dir() else place
    target = beside.with_suffix(SUFFIXES[chosen]) if out is None else Path(out)
    record = torch.zeros(loaded.shape)
    file = export_filter(loaded.network, record, target, chosen)
    inputs = example_inputs(loaded.network, record)
    return Export(
        file,
        loaded.choices,
        latency_ms(load_exported(target, chosen), inputs),
        loaded.utility_names,
        loaded.sensitive_names,
        _exported_encoder(loaded.network, record, target, chosen),
    )


def _exported_encoder(
    network: nn.Module, record: Tensor, target: Path, kind: Kind
) -> Exported | None:
    """``NAME.code.pt2`` beside ``NAME.pt2``, where codes are bounded."""
    if radius_of_codes(network) is None:
        return None
    path = target.with_name(f"{target.stem}.code{target.suffix}")
    return export_filter(Encoder(network), record, path, kind)


def _kind(kind: Kind | None, out: Path | str | None) -> Kind:
    """The kind that was asked for or that the file's name ends in; both have to agree."""
    if kind is not None and kind not in SUFFIXES:
        raise WrongUse(f"kind {kind!r}: choose one of {', '.join(SUFFIXES)}")
    if out is None:
        return kind or "torch"
    suffix = Path(out).suffix.lower()
    found = next((one for one, known in SUFFIXES.items() if known == suffix), None)
    wanted = kind or found
    if found is None or wanted is None or found != wanted:
        ends = SUFFIXES[kind] if kind else " or ".join(SUFFIXES.values())
        raise WrongUse(
            f"out {out}: files of kind {kind or ' or '.join(SUFFIXES)} end in {ends}; name it so, "
            "or choose the other kind"
        )
    return wanted


def apply(
    path: Path | str,
    source: Path | str,
    target: Path | str,
    *,
    records: str = "",
    key: Path | str | None = None,
    budget: float | None = None,
    unsafe: bool = False,
) -> Applied:
    """Write what a filter releases of people's records; nothing else is written.

    Without ``key`` noise is the operating system's, fresh for each record, and every further
    release of a record tells more of it. With it a record's noise follows from key, filter and
    record: a further release by the same filter is the same one, and where the filter's code is
    bounded, near records share their noise. Where the filter takes opt-in
    bits, everybody's attribute is hidden.

    Args:
        path: what `load` takes.
        source: a folder of pictures, a file ``.npz``, ``.npy``, ``.csv`` or ``.parquet``, or ``-``.
        target: a new folder or file, or ``-``.
        records: the array of an npz.
        key: file of the device's secret, 32 to 64 bytes; made where it is not there. Who has it can
            take the noise off again.
        budget: nats that all releases with this key may tell together at most; it is kept beside
            the key with the count, and holds until another is given. What went before the first
            one is not counted.
        unsafe: also a filter without noise, or beyond the bound that it claims.

    Raises:
        WrongUse: source and target do not go together, the target is there already, or the filter
            has no certificate to count with.
        FedlensError: the filter or the source cannot be used.
    """
    from fedlens.api.filter_noise import (
        Releaser,
        device_secret,
        keyed_releaser,
        shares_noise,
        system_noise,
    )
    from fedlens.api.filtering import apply_filter

    loaded, notes = load(path), list[str]()
    releaser = Releaser(loaded.network, loaded.shape, loaded.unit, system_noise)
    if key is None and budget is not None:
        raise WrongUse(f"budget {budget:g}: is counted beside a key; name one, key=FILE (--key)")
    _require_sound(loaded, unsafe=unsafe)
    if key is not None:
        if Path(key).resolve().is_relative_to(Path(target).resolve()):
            raise WrongUse(f"key {key}: lies in OUT; who gets the releases would get it too")
        used = Path(key).exists()
        secret, note = device_secret(Path(key))
        releaser = keyed_releaser(releaser, Path(key), secret, budget)
        notes.extend([note] if note else [])
        if used and releaser.budget is not None and not releaser.budget.path.exists():
            notes.append(f"{key}: what was released with it before its first budget is not counted")
    done = apply_filter(releaser, str(source), str(target), records)
    done.notes.extend(notes)
    done.shared = shares_noise(releaser)
    done.nats, done.budget = releaser.budget.spent() if releaser.budget else (None, None)
    return done
