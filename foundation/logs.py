"""Logs of our own processes: one line an event, as text or JSON, on standard error.

No log line holds a user's figure or an exception of a node's handler; `fedlens.client.app` sees to
that.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.errors import FedlensError

FORMAT_VARIABLE = "FEDLENS_LOG"
"""Environment variable: ``json`` for one JSON object a line; anything else for text."""
TEXT = "%(levelname)s %(name)s: %(message)s"
OURS = ("fedlens",)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LEVELS = ("error", "warning", "info", "debug", "critical")


class JsonLines(logging.Formatter):
    """One JSON object a line: ``time`` (UTC, whole seconds), ``level``, ``logger``, ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; an exception's trace under ``trace``."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


class StandardError(logging.Handler):
    """Writes to what standard error is now: Flower puts another in its place to pass a log on."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # a log that cannot be written must not end a run
            self.handleError(record)


class _OwnWords(logging.Filter):
    """Takes the trace off Flower's lines about an error whose message is all there is to say."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every line through."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, FedlensError):
            record.exc_info = record.exc_text = None
        return True


_OWN_WORDS = _OwnWords()


class DatedFile(logging.Handler):
    """Appends to a file of a run, for its owner alone, with the day of its beginning for a time.

    How long a round takes depends on who was drawn for it, so neither a line nor the file's status
    says more.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._day = today()
        self.setFormatter(logging.Formatter(f"{self._day} {TEXT}"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            os.write(self._file, (self.format(record) + "\n").encode("utf-8", "replace"))
            set_file_date(self._file, self._day)
        except Exception:  # a log that cannot be written must not end a run
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
        super().close()


@contextmanager
def logged_to(path: Path | None) -> Iterator[None]:
    """Have our packages' messages go into a file too; None: into none.

    A file that cannot be opened is no error: what runs is worth more than its log.
    """
    with ExitStack() as end:
        if path is not None:
            with suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                handler = DatedFile(path)
                end.callback(handler.close)
                for name in OURS:
                    logging.getLogger(name).addHandler(handler)
                    end.callback(logging.getLogger(name).removeHandler, handler)
        yield


def is_json() -> bool:
    """Whether logs are asked for as JSON."""
    return os.environ.get(FORMAT_VARIABLE, "").lower() == "json"


def shown_line(program: str, line: str) -> str:
    """A line that another program wrote, with the present time (UTC, whole seconds) and its name.

    As one JSON object where logs are asked for so; one that is such an object stays as it is.
    """
    text = _COLOURS.sub("", line.rstrip("\n"))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if not is_json():
        return f"{now} {program}: {text}"
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict) and {"time", "message"} <= set(found):
            return text
    level = next(
        (word for word in _LEVELS if re.match(rf"\W*{word}\b", text, re.IGNORECASE)), "info"
    )
    return json.dumps({"time": now, "level": level, "logger": program, "message": text})


def set_up_logs(*, times: bool = False) -> None:
    """Have our packages' messages from INFO on written; again and again without effect.

    Flower's lines about a mistake of ours or an operator's have no trace: its message was logged.
    With ``FEDLENS_LOG=json`` Flower's own lines take the same form.

    Args:
        times: whether lines of text begin with the time (UTC, whole seconds).
    """
    as_json = is_json()
    form: logging.Formatter = logging.Formatter(TEXT)
    if as_json:
        form = JsonLines()
    elif times:
        form = logging.Formatter(f"%(asctime)s {TEXT}", "%Y-%m-%dT%H:%M:%S+00:00")
        form.converter = time.gmtime
    for name in OURS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        own = [h for h in logger.handlers if isinstance(h, StandardError)]
        for ours in own or [StandardError()]:
            ours.setFormatter(form)
            logger.addHandler(ours)  # again without effect
    logging.getLogger("flwr").addFilter(_OWN_WORDS)
    if as_json:
        for handler in logging.getLogger("flwr").handlers:
            handler.setFormatter(form)
