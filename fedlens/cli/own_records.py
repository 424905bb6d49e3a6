"""People's own records: flags that name their columns, and ``fedlens privatizer apply``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, say, tell
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens.api.filtering import Applied

COLUMNS = {
    "utility": "column, or array, of what a service wants to know of each record",
    "sensitive": "column, or array, of what is to be hidden",
    "owner": "column, or array, of whom each record belongs to; parts are then split by owner",
}
STREAM = "-"


def add_column_flags(parser: argparse.ArgumentParser) -> None:
    """The columns of a source that has some: short for options behind its path."""
    for name, words in COLUMNS.items():
        parser.add_argument(f"--{name}", metavar="COLUMN", default="", help=words)


def with_columns(args: argparse.Namespace) -> str:
    """The source's full name, the columns that were named behind its path.

    Raises:
        WrongUse: the source has no path, or a name has a comma or an equals sign.
    """
    given = {name: value for name in COLUMNS if (value := getattr(args, name))}
    if not given:
        return str(args.data)
    if ":" not in args.data:
        raise WrongUse(
            f"--{next(iter(given))}: --data {args.data} has its own columns; the flag is for "
            "folder:PATH, npz:PATH, series:PATH and other sources with a path"
        )
    for name, value in given.items():
        if "," in value or "=" in value:
            raise WrongUse(f"--{name} {value}: has a comma or an equals sign; rename the column")
    return ",".join([args.data, *(f"{name}={value}" for name, value in given.items())])


def add_apply(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The action that filters people's own records."""
    parser = actions.add_parser(
        "apply",
        help="filter a folder of pictures, an archive, a table of series or a stream",
        description="Write what a filter releases of records: no label, no owner, no note of a "
        "camera. Names of pictures and series stay, and may tell what is hidden. Noise is drawn "
        "from the operating system, fresh for each record; then every further release of the same "
        "record tells more of it, which --key prevents; of records that are merely alike, such as "
        "frames of a video, it does where the filter's code is bounded. What is released is not "
        "differentially private.",
        epilog="example: fedlens privatizer apply FILTER.safetensors pictures released",
    )
    add = parser.add_argument
    add("filter", metavar="FILTER", help="file of filters/ of a curve or study, or a run's folder")
    add("source", metavar="IN", help="folder of pictures, .npz, .npy, .csv, .parquet, or - (stdin)")
    add("target", metavar="OUT", help="new folder, .npz, .npy, .csv, or - (standard output)")
    add("--records", default="", metavar="NAME", help="array of an npz (default: images)")
    add(
        "--key",
        metavar="FILE",
        help="secret of this device, made where it is not there: a record's noise follows from it, "
        "so that releasing a record again tells nothing more",
    )
    add(
        "--budget",
        type=float,
        metavar="NATS",
        help="let all releases with this key tell so much at most, counted in a file beside it; "
        "records that no longer fit are left out (default: the one set before, else none)",
    )
    add_unsafe_flag(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run_apply)


def add_unsafe_flag(parser: argparse.ArgumentParser) -> None:
    """For filters that hide nothing, or less than they claim."""
    parser.add_argument(
        "--unsafe",
        action="store_true",
        help="also a filter without noise, or beyond the bound that its file claims",
    )


def run_apply(args: argparse.Namespace) -> int:
    """Filter, say what was left out."""
    from fedlens.api.privatizer import apply
    from fedlens.privatizers.protocol import PrivatizerError

    if args.json and args.target == STREAM:
        raise WrongUse("--json: standard output has the records; leave it out, or name a file")
    try:
        done = apply(
            args.filter,
            args.source,
            args.target,
            records=args.records,
            key=args.key,
            budget=args.budget,
            unsafe=args.unsafe,
        )
    except PrivatizerError as error:
        raise WrongUse(str(error)) from None
    _report(done, args)
    return ExitStatus.DONE


def _report(done: Applied, args: argparse.Namespace) -> None:
    people = tell if args.target == STREAM else say
    for note in done.notes:
        people(note)
    where = "standard output" if args.target == STREAM else args.target
    people(f"{where}: {done.records} records released; not differentially private")
    if not args.key:
        people("release a record once, or use --key: a further release with fresh noise tells more")
    elif done.shared:
        people("records that are nearly alike share their noise; unlike ones each tell their own")
    else:
        people("a record that differs by one bit has fresh noise: of records alike release one")
    if done.nats is not None:
        people(
            f"told with this key since it has a budget: at most {done.nats:.1f} of "
            f"{done.budget:g} nats, given how alike the records are"
        )
    if args.json:
        print_json(
            {
                "records": done.records,
                "notes": done.notes,
                "path": args.target,
                "nats_told_at_most": done.nats,
            }
        )
