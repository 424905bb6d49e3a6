"""Filters as files that devices run: torch.export and ONNX, checked against the filter itself.

Noise is an input of the file. So the file is a function, its answers can be compared with the
filter's, and where the noise comes from is the device's to say. It must be each record's own, from
a source that cannot be predicted, for who knows it can take it off again; and *the same whenever
that record is released again*, for fresh noises can be averaged.
`fedlens.privatizers.record_noise` derives it so from a key that stays on the device, one key a
filter, and `fedlens.privatizers.noise_field` from the record's code, so that near records share it.

A file takes one record at a time: ``records`` float32 [1, ...], ``noise`` float32
[1, *noise_shape] where the filter takes any, ``choice`` float32 [1, choices] where it has opt-in
bits; it gives ``released`` float32 [1, ...].
"""

from __future__ import annotations

import contextlib
import copy
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from fedlens.privatizers.classifiers import choices_of, noise_shape_of
from fedlens.privatizers.protocol import PrivatizerError

Kind = Literal["torch", "onnx"]
Call = Callable[..., Tensor]
"""From records, noise and choice, as far as the filter takes them, to released records."""

TOLERANCE = 1e-4
"""Greatest difference of any released entry between a file and its filter, relative to the largest
entry (at least 1)."""
TRIALS = 8
RUNS, WARM_UP = 200, 20


class ExportError(PrivatizerError):
    """A filter that cannot be exported, or a file that does not do what the filter does."""


@dataclass(frozen=True)
class Exported:
    """A file that was checked.

    Attributes:
        path: where it lies.
        kind: ``torch`` (a program of torch.export) or ``onnx``.
        size: bytes.
        difference: greatest difference to the filter in the check, in the records' units.
    """

    path: Path
    kind: Kind
    size: int
    difference: float


class _Online(nn.Module):
    """The filter with exactly the inputs that its file has."""

    def __init__(self, filter_: nn.Module, noisy: bool) -> None:
        super().__init__()
        self.filter, self.noisy = filter_, noisy

    def forward(self, records: Tensor, *more: Tensor) -> Tensor:
        given = more if self.noisy else (records.new_zeros(len(records), 0), *more)
        released: Tensor = self.filter(records, *given)
        return released


def export_filter(
    filter: nn.Module,  # noqa: A002 - what it is
    record: Tensor,
    path: Path,
    kind: Kind,
    *,
    choices: int | None = None,
) -> Exported:
    """Write a filter to ``path`` if the file then does what the filter does.

    The file is written beside ``path`` first and takes its place only after the check: a refused
    export leaves no file, and one that was there before stays.

    Args:
        filter: as trained; it is copied and not changed.
        record: float32 [...], one example of the right shape; the check shifts and scales it.
        path: of the file; its folder is made.
        kind: ``torch`` or ``onnx`` (needs the extra ``export``).
        choices: opt-in bits that the file takes; None for those that the filter was built for.
            A mask is built for none and takes any number.

    Raises:
        ExportError: the filter does not take the record, draws numbers of its own, cannot be
            exported, or the file's answers are off by more than `TOLERANCE`.
    """
    if kind not in _WRITERS:
        raise ExportError(f"kind={kind!r} is unknown: choose one of {', '.join(_WRITERS)}")
    device = copy.deepcopy(filter).cpu().eval().requires_grad_(False)
    online = _Online(device, bool(noise_shape_of(filter)))
    trials = _trials(filter, record, choices)
    _check_function(online, trials[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        written = Path(folder) / path.name
        _write(online, trials[0], written, kind)
        difference = _difference(online, load_filter(written, kind), trials)
        size = written.stat().st_size
        written.replace(path)
    return Exported(path, kind, size, difference)


def load_filter(path: Path, kind: Kind) -> Call:
    """A file as a function of the tensors it takes, in their order, on one thread."""
    if kind == "torch":
        with path.open("rb") as file:
            program: Call = torch.export.load(file).module()
        return program
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [taken.name for taken in session.get_inputs()]

    def call(*inputs: Tensor) -> Tensor:
        given = {name: one.numpy() for name, one in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return call


@torch.no_grad()
def release(
    filter: nn.Module,  # noqa: A002 - what it is
    records: Tensor,
    generator: torch.Generator,
    choice: Tensor | None = None,
) -> Tensor:
    """The online filter: records [n, ...] with fresh noise of ``generator``, one draw each.

    For simulations, and for records that a device releases once. Noise of a known seed can be taken
    off again, and fresh noises of one record can be averaged: a device that may release a record
    again takes `fedlens.privatizers.record_noise` in its place.
    """
    shape = noise_shape_of(filter) or (0,)
    released: Tensor = filter(
        records, torch.randn(len(records), *shape, generator=generator), choice
    )
    return released


def latency_ms(call: Call, inputs: tuple[Tensor, ...], *, runs: int = RUNS) -> float:
    """Median wall time of one call in milliseconds, on one thread; the noise is drawn before."""
    with one_thread(), torch.no_grad():
        for _ in range(WARM_UP):
            call(*inputs)
        taken = []
        for _ in range(runs):
            start = time.perf_counter()
            call(*inputs)
            taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken)


def example_inputs(
    filter: nn.Module,  # noqa: A002 - what it is
    record: Tensor,
) -> tuple[Tensor, ...]:
    """What a filter's file takes: a record like ``record``, noise, and bits, as far as it does."""
    return _trials(filter, record, None)[0]


def _trials(filter_: nn.Module, record: Tensor, choices: int | None) -> list[tuple[Tensor, ...]]:
    source = torch.Generator().manual_seed(0)
    shape = noise_shape_of(filter_)
    bits_taken = choices_of(filter_) if choices is None else choices
    found = []
    for number in range(TRIALS):
        changed = record[None] + number * torch.randn(record[None].shape, generator=source)
        noise = [torch.randn(1, *shape, generator=source)] if shape else []
        bits = [torch.randint(0, 2, (1, bits_taken), generator=source).float()]
        found.append((changed.float(), *noise, *(bits if bits_taken else [])))
    return found


@torch.no_grad()
def _check_function(online: _Online, inputs: tuple[Tensor, ...]) -> None:
    """The filter takes the inputs and gives the same twice."""
    try:
        one, two = online(*inputs), online(*inputs)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ExportError(
            f"the filter does not take a record of shape {tuple(inputs[0].shape[1:])}: "
            f"{str(error).splitlines()[0]}; give a record (and choices) as it was trained on"
        ) from None
    if not torch.equal(one, two):
        raise ExportError(
            "the filter gives two answers to one record and noise: it draws numbers of its own; "
            "make all its noise an argument"
        )


def _write(online: _Online, inputs: tuple[Tensor, ...], path: Path, kind: Kind) -> None:
    try:
        with _quiet():
            _WRITERS[kind](online, inputs, path)
    except ImportError as error:
        raise ExportError(
            f"exporting to {kind} needs the package {error.name}; install fedlens[export]"
        ) from None
    except Exception as error:  # exporters raise whatever they like
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"the filter cannot be exported to {kind}: {reason[0]}") from error


def _write_torch(online: _Online, inputs: tuple[Tensor, ...], path: Path) -> None:
    with path.open("wb") as file:  # given a path, it insists on a suffix
        torch.export.save(torch.export.export(online, inputs), file)


def _write_onnx(online: _Online, inputs: tuple[Tensor, ...], path: Path) -> None:
    names = ["records", *(["noise"] if online.noisy else [])]
    names += ["choice"] * (len(inputs) - len(names))
    torch.onnx.export(
        online,
        inputs,
        path,
        dynamo=True,
        input_names=names,
        output_names=["released"],
        external_data=False,
        verbose=False,
    )


_WRITERS: dict[str, Callable[[_Online, tuple[Tensor, ...], Path], None]] = {
    "torch": _write_torch,
    "onnx": _write_onnx,
}


@torch.no_grad()
def _difference(online: _Online, exported: Call, trials: list[tuple[Tensor, ...]]) -> float:
    """The greatest difference over the trials.

    Raises:
        ExportError: it is above the tolerance, or no number.
    """
    worst = 0.0
    for inputs in trials:
        wanted, found = online(*inputs), exported(*inputs)
        if found.shape != wanted.shape:
            raise ExportError(
                f"the exported filter gives {tuple(found.shape)}, the filter "
                f"{tuple(wanted.shape)}; nothing was written"
            )
        off = float((found - wanted).abs().max())
        if not off <= TOLERANCE * max(1.0, float(wanted.abs().max())):
            raise ExportError(
                f"the exported filter is off by {off:g} (tolerance {TOLERANCE:g}); nothing was "
                "written. Export to the other kind, or report the filter's layers"
            )
        worst = max(worst, off)
    return worst


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute on one thread for as long as the context lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters: they warn of their own affairs; what goes wrong is raised."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
