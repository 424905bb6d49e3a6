"""Files that others made, read by a library in a child process: with bounded memory and time.

Libraries in C believe the sizes that a file claims, and a damaged file can end their process. In a
child that is one clear error here, and what it asks of memory is limited by the operating system.
Only JSON and bytes come back, a bounded piece at a time.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

Piece = tuple[dict[str, Any], bytes]
"""What a reader gives at a time: a JSON object, and bytes beside it."""
Reader = Callable[..., Iterator[Piece]]
MEMORY, TIMES = 1 << 30, 3
"""Bytes of addresses that a reader has, and how many more for each byte of the file; where the
system limits addresses (Linux does, macOS does not)."""
SECONDS = 120
"""In which the next piece must come."""
MOST_CONTENT = 1 << 28
"""Bytes of one piece."""
LONGEST_REASON = 200
_HEAD = struct.Struct("<BQQ")
_PIECE, _END, _ERROR = range(3)
_MEMORY_WORDS = ("malloc", "realloc", "out of memory", "bad_alloc", "Unable to allocate")


class IsolatedError(Exception):
    """Why a file could not be read, or not be read on: a part of one line."""


def read_isolated(reader: str, path: Path, *arguments: str) -> Iterator[Piece]:
    """The pieces of a file, as a reader in a child process gives them.

    Args:
        reader: ``"package.module:function"``; the function takes a path and the arguments, and
            gives pieces. What its module imports is not counted; each file starts a process.
        path: of the file.
        arguments: further ones of the function.

    Raises:
        IsolatedError: the reader raised an error or ended, or needed too much memory or time.
        OSError: the file is missing, or no process could be started.
    """
    limit = MEMORY + TIMES * path.stat().st_size
    places = [str(Path(place).absolute()) for place in sys.path]
    child = subprocess.Popen(  # noqa: S603 - this Python and this module
        [sys.executable, "-P", "-m", __name__, reader, str(limit), str(SECONDS), str(path),
         *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1",
             "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )  # fmt: skip
    out = cast(IO[bytes], child.stdout)
    try:
        while (piece := _next_piece(out, limit)) is not None:
            yield piece
    except EOFError:
        raise IsolatedError(_how_it_ended(child.wait(), limit)) from None
    finally:
        child.kill()
        child.wait()
        out.close()


def _next_piece(stream: IO[bytes], limit: int) -> Piece | None:
    """The next piece of a child; None at its end."""
    kind, said, content = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if kind == _END:
        return None
    if max(said, content) > MOST_CONTENT:
        raise IsolatedError("one of its parts is over 256 MiB")
    words = json.loads(_exactly(stream, said))
    if kind == _ERROR:
        raise IsolatedError(_too_much(limit) if words["memory"] else words["error"])
    return words, _exactly(stream, content)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _too_much(limit: int) -> str:
    return f"it needs over {limit >> 20} MiB of memory at once: write smaller parts"


def _how_it_ended(status: int, limit: int) -> str:
    if status == -signal.SIGALRM:
        return f"a part of it takes over {SECONDS} seconds"
    if status < 0:
        return f"it is damaged ({signal.Signals(-status).name}), or {_too_much(limit)}"
    return "its reader cannot be started"


def _run(reader: str, limit: str, seconds: str, path: str, *arguments: str) -> None:
    """The child: write each piece, and what went wrong."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no piece
    module, _, function = reader.partition(":")
    read: Reader = getattr(import_module(module), function)
    _limit_memory(int(limit))
    try:
        signal.alarm(int(seconds))
        for said, content in read(Path(path), *arguments):
            signal.alarm(0)  # who takes the pieces has time
            _write(out, _PIECE, said, content)
            signal.alarm(int(seconds))
        signal.alarm(0)
        _write(out, _END, {}, b"")
    except Exception as error:  # a library raises what it likes of a damaged file
        signal.alarm(0)
        lack = isinstance(error, MemoryError) or any(w in str(error) for w in _MEMORY_WORDS)
        text = str(error).strip().partition("\n")[0][:LONGEST_REASON] or type(error).__name__
        _write(out, _ERROR, {"error": text, "memory": lack}, b"")


def _write(out: IO[bytes], kind: int, said: dict[str, Any], content: bytes) -> None:
    words = json.dumps(said).encode()
    out.write(_HEAD.pack(kind, len(words), len(content)) + words)
    out.write(content)
    out.flush()


def _limit_memory(limit: int) -> None:
    """Have no more addresses than now and ``limit`` bytes, where the system knows such limits."""
    import resource

    used = 0
    with suppress(OSError, ValueError, IndexError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # no one wants the rest
        _run(*sys.argv[1:])
