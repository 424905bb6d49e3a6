"""Logs of our own processes: one line an event, as text or JSON, on standard error.

No log line holds a user's figure or an exception of a node's handler; `fedlens.client.app` sees to
that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

from fedlens.foundation.errors import FedlensError

FORMAT_VARIABLE = "FEDLENS_LOG"
"""Environment variable: ``json`` for one JSON object a line; anything else for text."""
OURS = ("fedlens",)


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


def set_up_logs() -> None:
    """Have our packages' messages from INFO on written; again and again without effect.

    Flower's lines about a mistake of ours or an operator's have no trace: its message was logged.
    With ``FEDLENS_LOG=json`` Flower's own lines take the same form.
    """
    as_json = os.environ.get(FORMAT_VARIABLE, "").lower() == "json"
    form = JsonLines() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s")
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
