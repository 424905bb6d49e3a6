"""Trained filters as files that this project reads again: what was built, and its numbers.

A file holds tensors and, as JSON beside them, names and numbers (safetensors): no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from fedlens.privatizers.attacks.claims import Claims
from fedlens.privatizers.networks.fader import Chained, FaderNet
from fedlens.privatizers.networks.filters import DenseFilter, LinearFilter, UNet
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.peaks import PeakReleaser
from fedlens.privatizers.networks.releasers import ConvReleaser, LstmReleaser
from fedlens.privatizers.networks.spectral import LowFrequencies, SpectralReleaser
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import PrivatizerError

_KNOWN = "filter"  # Where a file says what its tensors are the numbers of
_ARGUMENTS: dict[str, dict[str, str]] = {
    "UNet": {
        "width": "enter.out_channels", "noise": "noise_shape", "choices": "choices",
        "limits": "limits",
    },
    "DenseFilter": {
        "width": "enter.out_features", "noise": "noise_shape", "residual": "residual",
        "limits": "limits",
    },
    "LinearFilter": {"dim": "noise_shape"},
    "ConvReleaser": {
        "width": "width", "code": "encode.out_features", "capacity": "capacity", "noisy": "coded",
        "output_noise_std": "output_noise_std", "low": "low", "high": "high", "choices": "choices",
    },
    "LstmReleaser": {
        "hidden": "lstm.hidden_size", "channels": "channels", "layers": "lstm.num_layers",
        "low": "low", "high": "high", "steps": "noise_shape", "level": "level",
        "output_noise_std": "output_noise_std", "gated": "gated", "both_ways": "lstm.bidirectional",
    },
    "PeakReleaser": {"least": "least", "counted": "counted", "worth": "worth"},
    "MaskFilter": {"trained": "values"},
    "SpectralReleaser": {
        "shape": "features.shape", "highest": "features.highest", "width": "encode.in_features",
        "code": "encode.out_features", "capacity": "capacity", "low": "low", "high": "high",
        "choices": "choices",
    },
    "FaderNet": {
        "shape": "shape", "width": "down1.out_channels", "drawn": "drawn", "limits": "limits",
    },
    "Chained": {},
}  # fmt: skip
"""Where a filter has the arguments that it was built with."""
_PARTS = {"Chained": ("first", "second")}
"""Filters that others are made of, and where they have these."""
_READ: dict[str, Callable[[Any], Any]] = {
    "noise_shape": itemgetter(0),
    "coded": bool,
    "values": lambda values: isinstance(values, nn.Parameter),
    "worth": float,
}
"""What such a place says, where it is not the argument itself."""
_SHAPED = ("UNet", "DenseFilter", "ConvReleaser")  # Those whose first argument is a record's shape


@dataclass(frozen=True)
class RecordUnits:
    """How a filter's records stand to what people have.

    Attributes:
        unit: what an entry of a series is multiplied with to be in the units it was read in.
        utility_names: what the classes of the utility are called, in order; empty without names.
        sensitive_names: the same of the sensitive attribute.
    """

    unit: float = 1.0
    utility_names: tuple[str, ...] = ()
    sensitive_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: PrivateData) -> RecordUnits:
        """Those of the data that a filter is trained on."""
        return cls(data.unit, data.utility_names, data.sensitive_names)


def save_filter(
    filter_: nn.Module,
    shape: Sequence[int],
    path: Path,
    units: RecordUnits | None = None,
    claims: Claims | None = None,
) -> Path:
    """Write a filter of records of ``shape`` with what is claimed of it; the folder is made.

    Raises:
        PrivatizerError: it is of a kind that no file is known for.
    """
    known = _described(filter_, shape)
    known["records"] = asdict(units or RecordUnits())
    if claims is not None:
        known["claims"] = claims.row()
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous() for name, value in filter_.state_dict().items()}
    save_file(state, path, {_KNOWN: json.dumps(known)})
    return path


def keep_filter(
    filter_: nn.Module, data: PrivateData, path: Path, claims: Claims | None = None
) -> Path:
    """Write a study's filter of the records of ``data``, which `fedlens privatizer attack` takes.

    Raises:
        PrivatizerError: it is of a kind that no file is known for.
    """
    return save_filter(filter_, data.shape, path, RecordUnits.of(data), claims)


def _described(filter_: nn.Module, shape: Sequence[int]) -> dict[str, Any]:
    """What a filter was built with, as JSON values, and what its parts were."""
    kind = type(filter_).__name__
    if kind not in _ARGUMENTS:
        raise PrivatizerError(f"filters of kind {kind} have no file; keep {', '.join(_ARGUMENTS)}")
    arguments = {name: _value(filter_, place) for name, place in _ARGUMENTS[kind].items()}
    if kind in _SHAPED:
        arguments["shape"] = tuple(shape)
    parts = {name: _described(getattr(filter_, name), shape) for name in _PARTS.get(kind, ())}
    return {"kind": kind, "shape": list(shape), "arguments": arguments, "parts": parts}


def _value(filter_: nn.Module, place: str) -> Any:
    return _READ.get(place, lambda value: value)(attrgetter(place)(filter_))


def load_filter(path: Path) -> tuple[nn.Module, tuple[int, ...]]:
    """A filter in evaluation mode and the shape of the records that it takes.

    Raises:
        PrivatizerError: the file is no filter's.
        OSError: it cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as content:
            known = json.loads((content.metadata() or {})[_KNOWN])
            state = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        shape = tuple(int(side) for side in known["shape"])
        filter_ = _built(known, state)
        filter_.load_state_dict(state)
    except OSError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError, SafetensorError):
        raise PrivatizerError(
            f"{path} holds no filter that this version wrote; give a file of filters/ of a "
            "curve or study"
        ) from None
    return filter_.eval().requires_grad_(False), shape


def load_units(path: Path) -> RecordUnits:
    """What a filter's file says of its records; plain units without names where it says nothing.

    Raises:
        PrivatizerError: the file is no filter's.
        OSError: it cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as content:
            known = json.loads((content.metadata() or {})[_KNOWN]).get("records", {})
        names = (tuple(map(str, known.get(f"{one}_names", ()))) for one in ("utility", "sensitive"))
        return RecordUnits(float(known.get("unit", 1.0)), *names)
    except OSError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError):
        raise PrivatizerError(f"{path} holds no filter that this version wrote") from None


def load_claims(path: Path) -> Claims | None:
    """What a filter's file claims; None where it was written before there were claims.

    Raises:
        PrivatizerError: the file is no filter's, or its claims are none.
        OSError: it cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as content:
            known = json.loads((content.metadata() or {})[_KNOWN]).get("claims")
        return None if known is None else Claims.read(known)
    except OSError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, SafetensorError):
        raise PrivatizerError(
            f"{path}: its claims cannot be read; keep the filter again with the study or curve"
        ) from None


def _built(known: Mapping[str, Any], state: Mapping[str, Any]) -> nn.Module:
    """A filter as it was described; what its tensors have to say beforehand is in ``state``."""
    parts = {
        name: _built(
            part, {key[len(name) + 1 :]: state[key] for key in state if key.startswith(f"{name}.")}
        )
        for name, part in known.get("parts", {}).items()
    }
    return _BUILDERS[known["kind"]]({**known["arguments"], **parts}, state)


def _mask(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> nn.Module:
    sigma, keep, values = state["sigma"], state["keep"], state["values"]
    return MaskFilter(sigma, keep, values, shift=state["shift"], **arguments)


def _spectral(arguments: Mapping[str, Any], _: Mapping[str, Any]) -> nn.Module:
    rest = dict(arguments)
    features = LowFrequencies(tuple(rest.pop("shape")), rest.pop("highest"))
    return SpectralReleaser(features, **rest)


def _fader(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> nn.Module:
    rest = dict(arguments)
    shape, limits = tuple(rest.pop("shape")), rest.pop("limits")
    limits = None if limits is None else tuple(limits)
    return FaderNet(shape, state["prior"], limits=limits, **rest)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], nn.Module]] = {
    "MaskFilter": _mask,
    "SpectralReleaser": _spectral,
    "FaderNet": _fader,
    **{
        kind.__name__: lambda arguments, _, kind=kind: kind(**arguments)  # type: ignore[misc]
        for kind in (
            UNet,
            DenseFilter,
            LinearFilter,
            ConvReleaser,
            LstmReleaser,
            PeakReleaser,
            Chained,
        )
    },
}
