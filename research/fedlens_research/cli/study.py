"""``fedlens study``: what samples are worth, measured alike for every row of a table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_seeds_flag, make_out_folder, parse_seeds
from fedlens.cli.output import print_json, say, tell
from fedlens.foundation.errors import ExitStatus, WrongUse
from fedlens_research.cli.study_bugs import add_bugs_parser
from fedlens_research.cli.study_worth import add_worth_parser

if TYPE_CHECKING:
    from fedlens_research.table1.record import KeptLine, PageRecord
    from fedlens_research.table1.rows import TableRow
    from fedlens_research.table1.table import TableLine
    from fedlens_research.table1.trials import TableTrial

OUT = Path("runs") / "study"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its one table, and its flags."""
    parser = verbs.add_parser(
        "study",
        help=VERBS["study"],
        description="Train and measure whole tables of runs, each the same way.",
        epilog="example: fedlens study table1 --quick",
    )
    tables = parser.add_subparsers(dest="table", metavar="TABLE", required=True)
    table = tables.add_parser(
        "table1",
        help="what samples are worth, by data, unit and guarantee",
        description="Train real runs at several guarantees and measure what their samples are "
        "worth, beside a control and published figures. Goes on where it was stopped: only what is "
        "missing is computed. Simulation only: real test images are in no privacy budget.",
        epilog="example: fedlens study table1 --quick",
    )
    add = table.add_argument
    add("--rows", nargs="+", default=[], metavar="ROW", help=_rows_help())
    add_seeds_flag(table)
    add(
        "--guarantee",
        nargs="+",
        default=[],
        metavar="EPSILON@DELTA",
        help="guarantees, each for everything that a run releases: 1@1e-10, none for no noise, "
        "preset for the preset's own noise (default: 1@1e-10 1@1e-5 10@1e-5 none)",
    )
    add(
        "--quick",
        action="store_true",
        help="MNIST records and MNIST 3,000 users at 1@1e-10 with one seed; unless --page is "
        "given, students learn from a quarter as many images, the curve of labels has "
        "fewer points, and generators train in the precision that is fastest here",
    )
    add("--out", type=Path, default=OUT, help="folder of the study (default: runs/study)")
    add("--data-dir", help="folder of the data sets' files")
    add(
        "--jobs",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="runs trained or measured at a time (default: 2, or 1 on one core)",
    )
    add(
        "--kept",
        action="store_true",
        help="compute nothing: show what of the rows, guarantees and seeds is in the folder",
    )
    add(
        "--page",
        type=Path,
        help="write the results as a Markdown page there too, and its figures as JSON beside it; "
        "figures that are there from before and were measured in the same way stay on the page",
    )
    add_json_flag(table)
    table.set_defaults(run=run)
    add_bugs_parser(tables)
    add_worth_parser(tables)
    _add_privatizer_studies(tables)


def _add_privatizer_studies(tables: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """A sub-command for each study of privatizers."""
    from fedlens.foundation.registry import PluginError
    from fedlens_research.papers import STUDIES

    for name in STUDIES:
        try:
            about = STUDIES[name].about
        except (PluginError, AttributeError) as error:  # another package's; ours still work
            tell(f"fedlens: study {name!r} is left out: {error}")
            continue
        study = tables.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}. Prints a table with the "
            "paper's figures where it has any, writes rows and plots. Simulation only: raw data is "
            "used and no budget is kept.",
            epilog=f"example: fedlens study {name} --quick",
        )
        add = study.add_argument
        add("--quick", action="store_true", help="a small form of it, one seed")
        add_seeds_flag(study)
        add(
            "--set",
            action="append",
            default=[],
            dest="settings",
            metavar="KEY=VALUE",
            help="one setting over the study's own: 'points=[\"1:0.2\"]'; may be repeated",
        )
        add("--out", type=Path, help=f"folder of rows and plots (default: {OUT}-{name})")
        add("--data-dir", help="folder of the data sets' files")
        add_json_flag(study)
        study.set_defaults(run=run_privatizer_study)


def run_privatizer_study(args: argparse.Namespace) -> int:
    """Run a study of privatizers, print its table."""
    from fedlens.foundation.tables import print_table, table_of
    from fedlens.privatizers.networks.masks import MaskError
    from fedlens.privatizers.protocol import PrivatizerError
    from fedlens.server.config.loading import parse_setting
    from fedlens_research.framework.study import run_study
    from fedlens_research.papers import STUDIES

    if args.settings and args.out is None:
        raise WrongUse("--set: give --out too, so that a part does not replace the whole study")
    try:
        args.out = args.out or OUT.with_name(f"{OUT.name}-{args.table}")
        study = STUDIES[args.table]
        rows = run_study(
            study,
            quick=args.quick,
            changes=dict(parse_setting(text) for text in args.settings),
            seeds=parse_seeds(args.seeds, quick=args.quick),
            data_dir=Path(args.data_dir) if args.data_dir else None,
            out=make_out_folder(args.out),
            report=tell,
        )
    except (PrivatizerError, MaskError) as error:
        raise WrongUse(str(error)) from None
    print_table(table_of(rows, study.load().COLUMNS))
    say("simulation only: raw data measured this, no budget was kept")
    for made in sorted(args.out.iterdir()):
        say(f"  {made}")
    if args.json:
        print_json({"rows": rows})
    return ExitStatus.DONE


def _rows_help() -> str:
    from fedlens_research.table1.rows import ROWS

    return f"rows (default: all whose preset is there): {', '.join(ROWS)}"


def run(args: argparse.Namespace) -> int:
    """Check, fill in what is missing, print the table."""
    from fedlens.data.registry import DatasetError

    try:
        return _table(args)
    except DatasetError as error:
        raise WrongUse(str(error)) from None


def _table(args: argparse.Namespace) -> int:
    from fedlens_research.table1 import evaluation
    from fedlens_research.table1.guarantees import parse_guarantee
    from fedlens_research.table1.rows import chosen_rows
    from fedlens_research.table1.runner import TableRun, trials_of
    from fedlens_research.table1.table import lines_of, print_lines

    # a page wants all that is measured, whichever rows it is asked for
    looks = args.quick and not args.page
    rows = chosen_rows(args.rows, quick=args.quick)
    guarantees = [parse_guarantee(text) for text in args.guarantee]
    seeds = list(parse_seeds(args.seeds, quick=args.quick))
    if args.jobs < 1:
        raise WrongUse(f"--jobs {args.jobs}: give at least 1")
    out = make_out_folder(args.out)
    data_dir = str(Path(args.data_dir).absolute()) if args.data_dir else ""
    trials = trials_of(rows, guarantees, seeds, out, named=bool(args.rows), first=args.quick)
    study = TableRun(
        trials, out, data_dir=data_dir, jobs=args.jobs, say=tell,
        effort=evaluation.quick() if looks else evaluation.FULL,
        precision="auto" if looks else "float32",
    )  # fmt: skip
    missing = study.missing()
    # a page that cannot be written is told before hours of work
    known = _known_before(args.page).entries if args.page else []
    if args.kept:
        trials = _kept(trials, missing, out, known)
    elif missing:
        _check_data(rows, data_dir)
    failures = [] if args.kept else study.run()
    # where one failed, or another study was at work here, other figures may lie
    absent = [] if args.kept else study.missing()
    lines = lines_of([trial for trial in trials if trial not in absent])
    if lines:
        print_lines(lines)
        say("simulation only: real test images measured this and are in no budget")
    if lines or args.page:
        _draw(args, out, lines)
    for failure in failures:
        tell(f"fedlens: {failure}")
    if args.json:
        print_json({"rows": [line.to_json() for line in lines]})
    return ExitStatus.FAILED if failures else ExitStatus.DONE


def _kept(
    trials: Sequence[TableTrial],
    missing: Sequence[TableTrial],
    out: Path,
    known: Sequence[KeptLine],
) -> list[TableTrial]:
    """The trials that are there; a page may have figures from before without any."""
    from fedlens_research.framework.errors import StudyError

    kept = [trial for trial in trials if trial not in missing]
    if not kept and not known:
        less = any(trial.measured for trial in trials)
        fix = "show what was measured less with --quick and no --page, or " if less else ""
        raise StudyError(
            f"--kept: {out} has none of these {len(trials)} trials whole; {fix}leave it out once"
        )
    tell(f"{len(trials)} trials, {len(kept)} of them there, in {out}")
    return kept


def _check_data(rows: Sequence[TableRow], data_dir: str) -> None:
    """Bad data is told before anything is trained."""
    from fedlens.data.registry import load

    for name in dict.fromkeys(row.data for row in rows):
        load(name, data_dir or None)


def _draw(args: argparse.Namespace, out: Path, lines: Sequence[TableLine]) -> None:
    """Plots and the page in the study's folder; another page where one is asked for."""
    from fedlens_research.table1.page import write_page

    made = write_page(out / "results.md", lines, out) if lines else []
    if args.page:
        made += _draw_page(args.page, lines)
    for path in made:
        say(f"  {path}")


def _draw_page(page: Path, lines: Sequence[TableLine]) -> list[Path]:
    """A page of these lines and of those that its record keeps from before."""
    from fedlens_research.table1 import evaluation
    from fedlens_research.table1.page import IMAGES, write_page
    from fedlens_research.table1.record import KeptLine, with_kept, write_record

    known = _known_before(page)  # again: hours may have passed
    entries = with_kept([KeptLine.of(line, evaluation.FULL) for line in lines], known.entries)
    for name in known.left_out:
        tell(f"{name}: leaves the page, its settings or the way it is measured have changed")
    for entry in entries:
        shown = [group.seeds for group in entry.line.groups]
        waiting = [seed for g in entry.groups if g.seeds not in shown for seed in g.seeds]
        if waiting:
            name = f"{entry.line.row.name} {entry.line.guarantee}"
            tell(f"{name}: seeds {waiting} are part of a group and wait until all of it are there")
    if not entries:
        return []
    record = page.with_suffix(".json")
    write_record(record, entries)  # first: a page without its figures would lose them
    return [*write_page(page, [e.line for e in entries], page.parent / IMAGES), record]


def _known_before(page: Path) -> PageRecord:
    """What a page's record has from before, once it is certain that both can be written."""
    from fedlens_research.framework.errors import StudyError
    from fedlens_research.table1 import evaluation
    from fedlens_research.table1.page import IMAGES
    from fedlens_research.table1.record import read_record

    record = page.with_suffix(".json")
    if page.suffix != ".md" or page.is_dir():
        raise StudyError(f"--page {page}: give a file name that ends in .md")
    if page.exists() and not record.exists():
        raise StudyError(
            f"--page {page}: it is there without its figures, {record}, and would lose what it "
            "shows; bring them back, or move the page away"
        )
    try:
        (page.parent / IMAGES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"--page {page}: cannot be written: {error.strerror}") from None
    if not os.access(page.parent, os.W_OK):
        raise StudyError(f"--page {page}: {page.parent} cannot be written to")
    return read_record(record, page.parent / IMAGES, evaluation.FULL)
