"""Trained filters as files that this project reads again: what was built, and its numbers.

A file holds tensors and, as JSON beside them, names and numbers (safetensors): no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from privatizers.networks.filters import DenseFilter, LinearFilter, UNet
from privatizers.networks.masks import MaskFilter
from privatizers.networks.releasers import ConvReleaser, LstmReleaser
from privatizers.protocol import PrivatizerError

Parts = dict[str, Any]
_KNOWN = "filter"  # Where a file says what its tensors are the numbers of


def save_filter(filter_: nn.Module, shape: Sequence[int], path: Path) -> Path:
    """Write a filter of records of ``shape``; the folder is made.

    Raises:
        PrivatizerError: it is of a kind that no file is known for.
    """
    kind = type(filter_).__name__
    if kind not in _ARGUMENTS:
        raise PrivatizerError(f"filters of kind {kind} have no file; keep {', '.join(_ARGUMENTS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {
        "kind": kind,
        "shape": list(shape),
        "arguments": _ARGUMENTS[kind](filter_, tuple(shape)),
    }
    state = {name: value.contiguous() for name, value in filter_.state_dict().items()}
    save_file(state, path, {_KNOWN: json.dumps(known)})
    return path


def load_filter(path: Path) -> tuple[nn.Module, tuple[int, ...]]:
    """A filter in evaluation mode and the shape of the records that it takes.

    Raises:
        PrivatizerError: the file is no filter's.
        OSError: it cannot be read.
    """
    try:
        known, state = _read(path)
        shape = tuple(int(side) for side in known["shape"])
        filter_ = _BUILDERS[known["kind"]](known["arguments"], state)
        filter_.load_state_dict(state)
    except OSError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError, SafetensorError):
        raise PrivatizerError(
            f"{path} holds no filter that this version wrote; give a file of a curve's folder "
            "filters/"
        ) from None
    return filter_.eval().requires_grad_(False), shape


def _read(path: Path) -> tuple[Parts, dict[str, Any]]:
    with safe_open(path, framework="pt") as content:
        known: Parts = json.loads((content.metadata() or {})[_KNOWN])
        return known, {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118


def _unet(filter_: Any, shape: tuple[int, ...]) -> Parts:
    limits = filter_.limits
    return {
        "shape": shape,
        "width": filter_.enter.out_channels,
        "noise": filter_.noise_shape[0],
        "choices": filter_.choices,
        "limits": None if limits is None else tuple(limits),
    }


def _dense(filter_: Any, shape: tuple[int, ...]) -> Parts:
    limits = filter_.limits
    return {
        "shape": shape,
        "width": filter_.enter.out_features,
        "noise": filter_.noise_shape[0],
        "residual": filter_.residual,
        "limits": None if limits is None else tuple(limits),
    }


def _conv_releaser(filter_: Any, shape: tuple[int, ...]) -> Parts:
    return {
        "shape": shape,
        "width": filter_.down1.out_channels,
        "code": filter_.encode.out_features,
        "noisy": bool(filter_.coded),
        "output_noise_std": filter_.output_noise_std,
        "low": filter_.low,
        "high": filter_.high,
    }


def _lstm_releaser(filter_: Any, _shape: tuple[int, ...]) -> Parts:
    return {
        "channels": filter_.correct.out_features,
        "hidden": filter_.correct.in_features,
        "layers": filter_.lstm.num_layers,
        "low": filter_.low,
        "high": filter_.high,
        "steps": filter_.noise_shape[0],
        "level": filter_.level,
        "output_noise_std": filter_.output_noise_std,
    }


_ARGUMENTS: dict[str, Callable[[Any, tuple[int, ...]], Parts]] = {
    "UNet": _unet,
    "DenseFilter": _dense,
    "LinearFilter": lambda filter_, _: {"dim": filter_.noise_shape[0]},
    "ConvReleaser": _conv_releaser,
    "LstmReleaser": _lstm_releaser,
    "MaskFilter": lambda filter_, _: {"trained": isinstance(filter_.values, nn.Parameter)},
}


def _mask(arguments: Parts, state: Mapping[str, Any]) -> nn.Module:
    sigma, keep, values = state["sigma"], state["keep"], state["values"]
    return MaskFilter(sigma, keep, values, shift=state["shift"], **arguments)


_BUILDERS: dict[str, Callable[[Parts, Mapping[str, Any]], nn.Module]] = {
    "UNet": lambda arguments, _: UNet(**arguments),
    "DenseFilter": lambda arguments, _: DenseFilter(**arguments),
    "LinearFilter": lambda arguments, _: LinearFilter(**arguments),
    "ConvReleaser": lambda arguments, _: ConvReleaser(**arguments),
    "LstmReleaser": lambda arguments, _: LstmReleaser(**arguments),
    "MaskFilter": _mask,
}
