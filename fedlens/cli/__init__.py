"""The ``fedlens`` command: one verb a file, and the one place where errors become messages.

Exit status: 0 done, 1 failed, 2 wrong use, 3 stopped by a privacy budget, 4 an audit's alarm.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from foundation.errors import ExitStatus, FedlensError, WrongUse

__all__ = ["WrongUse"]

DONE, FAILED, WRONG_USE, OUT_OF_BUDGET, ALARM = ExitStatus
VERBS = (
    "simulate",
    "resume",
    "samples",
    "student",
    "study",
    "privatizer",
    "budget",
    "calibrate",
    "ledger",
    "population",
    "audit",
    "dashboard",
    "db",
)
ABOUT = "Look at, debug, label and train on federated data without anyone seeing it."
EXAMPLES = """examples:
  fedlens simulate --preset demo --out runs/first      train on the embedded data
  fedlens dashboard runs/first                         look at the samples, label them
  fedlens ledger verify runs/first                     check what was spent"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="fedlens",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        importlib.import_module(f"fedlens.cli.{verb}").add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    _stay_offline()
    chosen = build_parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except KeyboardInterrupt:
        trains = chosen.verb in ("simulate", "resume")
        how = "; nothing spent is lost: `fedlens resume RUN_DIR` goes on" if trains else ""
        return _say(f"interrupted{how}", FAILED)
    except BrokenPipeError:
        return FAILED
    except FedlensError as error:
        return _say(str(error), error.exit_status)
    except OSError as error:
        return _say(str(error), FAILED)


def _stay_offline() -> None:
    """Keep Flower and Ray from calling home; must be set before they are imported."""
    for name, value in (
        ("FLWR_TELEMETRY_ENABLED", "0"),
        ("FLWR_DISABLE_UPDATE_CHECK", "1"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
    ):
        os.environ.setdefault(name, value)


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"fedlens: {message}\n")
    return status
