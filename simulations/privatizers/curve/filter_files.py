"""Trained filters as files that this project reads again: what was built, and its numbers.

A file holds names, numbers and tensors, and no code: it is read with ``weights_only``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from client.privatizers.protocol import PrivatizerError
from models.filters import DenseFilter, LinearFilter, UNet
from models.masks import MaskFilter
from models.releasers import ConvReleaser, LstmReleaser

Parts = dict[str, Any]


def save_filter(filter_: nn.Module, shape: Sequence[int], path: Path) -> Path:
    """Write a filter of records of ``shape``; the folder is made.

    Raises:
        PrivatizerError: it is of a kind that no file is known for.
    """
    kind = type(filter_).__name__
    if kind not in _ARGUMENTS:
        raise PrivatizerError(f"filters of kind {kind} have no file; keep {', '.join(_ARGUMENTS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "kind": kind,
        "shape": list(shape),
        "arguments": _ARGUMENTS[kind](filter_, tuple(shape)),
        "state": filter_.state_dict(),
    }
    torch.save(content, path)
    return path


def load_filter(path: Path) -> tuple[nn.Module, tuple[int, ...]]:
    """A filter in evaluation mode and the shape of the records that it takes.

    Raises:
        PrivatizerError: the file is no filter's.
        OSError: it cannot be read.
    """
    try:
        content = torch.load(path, weights_only=True)
        filter_ = _BUILDERS[content["kind"]](content["arguments"], content["state"])
        filter_.load_state_dict(content["state"])
        shape = tuple(int(side) for side in content["shape"])
    except OSError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, pickle.UnpicklingError, EOFError):
        raise PrivatizerError(
            f"{path} holds no filter that this version wrote; give a file of a curve's folder "
            "filters/"
        ) from None
    return filter_.eval().requires_grad_(False), shape


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
        "grain": filter_.grain,
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
        "grain": filter_.grain,
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
