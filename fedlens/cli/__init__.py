"""The ``fedlens`` command: one verb a file, and the one place where errors become messages.

Its files parse and print; what they print comes from `fedlens` and the packages below. Exit status:
see `ExitStatus`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from fedlens.foundation.errors import ExitStatus, FedlensError

VERBS = (
    "simulate",
    "resume",
    "samples",
    "diagnose",
    "findings",
    "power",
    "probe",
    "student",
    "study",
    "privatizer",
    "budget",
    "calibrate",
    "ledger",
    "population",
    "node",
    "audit",
    "deploy",
    "dashboard",
    "accounts",
    "labels",
    "db",
    "backup",
    "restore",
    "completion",
)
ABOUT = "Look at, debug, label and train on federated data without anyone seeing it."
EXAMPLES = """examples:
  fedlens simulate --preset demo --out runs/first      train on the embedded data
  fedlens dashboard runs/first                         look at the samples, label them
  fedlens ledger verify runs/first                     check what was spent

exit status: 0 done, 1 failed, 2 wrong use, 3 stopped by a privacy budget, 4 an audit's alarm"""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import fedlens

        sys.stdout.write(f"fedlens {fedlens.__version__}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="fedlens",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    parser.set_defaults(run=None)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb in VERBS:
        importlib.import_module(f"fedlens.cli.{verb}").add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    if chosen.run is None:
        parser.print_help()
        return ExitStatus.DONE
    try:
        return int(chosen.run(chosen))
    except KeyboardInterrupt:
        trains = chosen.verb in ("simulate", "resume")
        how = "; nothing spent is lost: `fedlens resume RUN_DIR` goes on" if trains else ""
        return _say(f"interrupted{how}", ExitStatus.FAILED)
    except BrokenPipeError:
        return ExitStatus.FAILED
    except FedlensError as error:
        return _say(str(error), error.exit_status)
    except OSError as error:
        return _say(str(error), ExitStatus.FAILED)


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"fedlens: {message}\n")
    return status
