"""Exported files as filters again: functions of record and noise whose inside is not looked at."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fedlens.privatizers.export import Call, ExportError, Kind, load_filter

SUFFIXES: dict[str, Kind] = {".pt2": "torch", ".onnx": "onnx"}


class ExportedFilter(nn.Module):
    """A file of `export_filter`, called record by record, as devices call it.

    Attributes:
        shape: of one record.
        noise_shape: of one record's noise; () where the file takes none.
        choices: opt-in bits that it takes; without any given, all are 1: hidden.
    """

    def __init__(
        self, call: Call, shape: tuple[int, ...], noise_shape: tuple[int, ...], choices: int
    ) -> None:
        super().__init__()
        self.call = call
        self.shape, self.noise_shape, self.choices = shape, noise_shape, choices

    @classmethod
    def open(cls, path: Path, *, trusted: bool = False) -> ExportedFilter:
        """A file that ends in .pt2 or .onnx.

        Args:
            path: of the file.
            trusted: it may run code here. A .pt2 does when it is read: PyTorch unpickles parts of
                it and evaluates others. An .onnx does not.

        Raises:
            ExportError: it is no exported filter, what reads it is not installed, or it is a .pt2
                that is not trusted.
        """
        kind = SUFFIXES.get(path.suffix.lower())
        if kind is None or not path.is_file():
            raise ExportError(f"{path}: give a file that ends in {' or '.join(SUFFIXES)}")
        if kind == "torch" and not trusted:
            raise ExportError(
                f"{path}: who makes a .pt2 can have it run code as it is read. Give the kept "
                "filter or an .onnx, or say --trusted (trusted=True) where you made the file"
            )
        try:
            shapes = _inputs(path, kind)
            call = load_filter(path, kind)
        except ImportError as error:
            raise ExportError(
                f"{path}: reading it needs the package {error.name}; install fedlens[export]"
            ) from None
        except Exception as error:  # readers raise whatever they like
            raise ExportError(f"{path} is no exported filter: {type(error).__name__}") from error
        record, noise, choices = _named(path, shapes)
        return cls(call, record, noise, choices)

    @torch.no_grad()
    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released records [n, ...]."""
        bits = records.new_ones(len(records), self.choices) if choice is None else choice
        found = []
        for row in range(len(records)):
            given = [records[row : row + 1]]
            if self.noise_shape:
                given.append(noise[row : row + 1])
            if self.choices:
                given.append(bits[row : row + 1])
            found.append(self.call(*given))
        return torch.cat(found)


def _inputs(path: Path, kind: Kind) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each input, the first axis one record."""
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return [(taken.name, tuple(taken.shape)) for taken in session.get_inputs()]
    with path.open("rb") as file:
        program = torch.export.load(file)
    named = set(program.graph_signature.user_inputs)
    return [
        (node.name, tuple(node.meta["val"].shape))
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in named
    ]


def _named(
    path: Path, inputs: list[tuple[str, tuple[int, ...]]]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shapes of a record and its noise, and the number of opt-in bits.

    Files have up to three inputs: records, noise, choice. ONNX names them; a program of
    torch.export keeps their order only, so that its second input is the noise.
    """
    shapes = [tuple(int(side) for side in shape) for _, shape in inputs]
    if not 1 <= len(shapes) <= 3 or any(not shape or shape[0] != 1 for shape in shapes):
        raise ExportError(f"{path}: takes {shapes}; an exported filter takes one record at a time")
    names = [name for name, _ in inputs]
    bits_only = len(shapes) == 2 and names[1] == "choice"
    noise = shapes[1][1:] if len(shapes) > 1 and not bits_only else ()
    choices = shapes[-1][1] if bits_only or len(shapes) == 3 else 0
    return shapes[0][1:], noise, choices
