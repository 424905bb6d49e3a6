"""The ``fedlens`` command: a verb or two a file, and the one place where errors become messages.

Its files parse and print; what they print comes from `fedlens` and the packages below. Exit status:
see `ExitStatus`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from fedlens.foundation.errors import ExitStatus, FedlensError

VERBS = {
    "simulate": "train a generator on simulated users' data",
    "rehearse": "try a schedule on public pictures before it spends a budget",
    "resume": "go on with a run that was interrupted",
    "samples": "write a contact sheet (PNG) of a run's samples, or export them",
    "diagnose": "name a fault in users' data by what a run has released anyway",
    "findings": "list what engineers found, or write one finding as a report to share",
    "power": "the smallest share of users in which a diagnosis would find each fault",
    "card": "show what users' pictures are like, by one noised sum, before anything is learned",
    "probe": "ask all users one bounded number, answered by a noised mean",
    "student": "train a classifier on synthetic samples, test it on real images",
    "study": "train and measure whole tables of runs",
    "privatizer": "train filters, attack each afresh, and export them",
    "budget": "say what a schedule of releases costs",
    "calibrate": "find the noise or the rounds that a budget allows",
    "ledger": "show, verify or export a run's privacy ledger",
    "population": "keep one privacy budget for all runs over the same users",
    "node": "prepare and check a node's own data",
    "audit": "try to catch the code leaking more than the accountant says",
    "deploy": "set up, start, check and use a federation on real machines",
    "dashboard": "open the dashboard over a store",
    "accounts": "keep the dashboard's accounts",
    "labels": "export and import annotations, draw more samples to label",
    "db": "upgrade or check a store's schema",
    "backup": "write a run's folder, ledger and store into one archive",
    "restore": "bring a run back from its archive",
    "completion": "print a script that completes commands in a shell",
}
"""Verbs in the order of the help, each with its line there."""
FILES = {"calibrate": "budget", "power": "diagnose", "restore": "backup"}
"""Where the verbs are that share another one's file."""
OF_RESEARCH = ("study",)
"""Those that another package carries out: see `fedlens.cli.flags`."""
ABOUT = "Look at, debug, label and train on federated data without anyone seeing it."
EXAMPLES = """examples:
  fedlens simulate --preset demo --out runs/first      train on the embedded data
  fedlens dashboard runs/first                         look at the samples, label them
  fedlens ledger verify runs/first                     check what was spent

exit status: 0 done, 1 failed, 2 wrong use, 3 stopped by a privacy budget, 4 an alarm of
an audit or a card, 5 a card cannot tell"""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import fedlens

        sys.stdout.write(f"fedlens {fedlens.__version__}\n")
        parser.exit()


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The whole command line, for completion and the reference; or as much as one verb needs.

    A verb's file is imported, with what its flags and their help need, only where its own parser is
    built: the other verbs have their line in the help and nothing else.

    Args:
        verb: the only verb that will be parsed; any other text than a verb builds none of them.
    """
    parser = argparse.ArgumentParser(
        prog="fedlens",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    parser.set_defaults(run=None)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, about in VERBS.items():
        if verb in (None, name):
            _add_verb(verbs, name)
        else:
            verbs.add_parser(name, help=about)
    return parser


def _add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> None:
    if name in OF_RESEARCH:
        from fedlens.cli.flags import add_research_verb

        add_research_verb(verbs, name, VERBS[name], entry=name)
    else:
        file = importlib.import_module(f"fedlens.cli.{FILES.get(name, name)}")
        getattr(file, f"add_{name}_parser" if name in FILES else "add_parser")(verbs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    if os.name != "posix":
        why = "runs on Linux or another POSIX system: on Windows use WSL 2"
        return _say(why, ExitStatus.WRONG_USE)
    arguments = sys.argv[1:] if arguments is None else arguments
    # No flag before the verb takes a value, so the first word that is none is the verb.
    verb = next((word for word in arguments if not word.startswith("-")), "")
    parser = build_parser(verb)
    chosen = parser.parse_args(arguments)
    if chosen.run is None:
        parser.print_help()
        return ExitStatus.DONE
    try:
        return int(chosen.run(chosen))
    except KeyboardInterrupt:
        trains = chosen.verb in ("simulate", "rehearse", "resume")
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
