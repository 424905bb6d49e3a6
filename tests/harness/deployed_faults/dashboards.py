"""Kills of the dashboard in the middle of a label being written, and commands that come beside it.

A desk sends answers to a real dashboard over HTTP, keeps what was not acknowledged, and sends it
again to the next one, as a browser does. Then each answer must be stored once, whole, as sent, for
whoever opens the store from outside.

    python -m harness.deployed_faults.dashboards STORE TOKEN PORT EDGE CALL

is the dashboard that dies.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, event, text

from fedlens.dashboard.labelling.answers import scope_of
from fedlens.store import LabelRecord, ProjectRecord, Store, open_store
from fedlens.store.engine import locate, make_engine
from harness.faults.scenarios import Outcomes, Places, settings
from harness.faults.victim import Mishap, Victim

EDGES = (
    "before the row",
    "after the row",
    "before the commit",
    "after the commit",
    "before the reply",
    "at random",
)
"""Where it dies; at random is some moment after its first answer came."""
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")
PROJECT = "labelled under faults"
BATCH = 4
MOST_CALLS = 12
"""Writes of an answer among which one is the last."""
START_SECONDS, REPLY_SECONDS = 120.0, 60.0
LABELS = tuple(LabelRecord(key=str(c), name=f"class {c}") for c in range(3))


# The dashboard that dies


def main(arguments: list[str]) -> None:
    """Serve a store until the edge of the ``CALL``-th answer."""
    from fedlens.dashboard.serve import serve

    store, token, port, edge, call = arguments
    if edge:
        _die_at(edge, int(call))
    serve(store, token=token, port=int(port))


def _die_at(edge: str, call: int) -> None:
    left = [call]

    def passed() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if edge == "before the reply":
        _before_replies(passed)
    elif edge == "at random":
        _at_random(call)
    elif edge.endswith("the row"):
        moment = "before_cursor_execute" if edge.startswith("before") else "after_cursor_execute"
        event.listen(Engine, moment, lambda *seen: passed() if _is_answer(seen[2]) else None)
    else:
        _at_commits(edge.startswith("before"), passed)


def _is_answer(statement: object) -> bool:
    return str(statement).startswith("INSERT INTO annotations")


def _at_commits(before: bool, passed: Any) -> None:
    """Pass at commits of transactions that wrote an answer."""
    wrote: set[int] = set()

    def note(connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if _is_answer(statement):
            wrote.add(id(connection))

    def commit(connection: Any) -> None:
        if id(connection) in wrote:
            wrote.discard(id(connection))
            if not before:
                connection.connection.commit()
            passed()

    event.listen(Engine, "after_cursor_execute", note)
    event.listen(Engine, "commit", commit)


def _before_replies(passed: Any) -> None:
    from fedlens.dashboard.labelling import desk_api

    real = desk_api.__dict__["store_answers"]

    def take(*args: Any, **kwargs: Any) -> Any:
        receipts = real(*args, **kwargs)
        passed()
        return receipts

    setattr(desk_api, "store_answers", take)  # noqa: B010


def _at_random(call: int) -> None:
    """Die some milliseconds after the first answer comes: as many as are drawn for ``call``."""
    from fedlens.dashboard.labelling import desk_api

    real, seconds = (
        desk_api.__dict__["store_answers"],
        float(np.random.default_rng(call).uniform(0.0, 0.15)),
    )

    def take(*args: Any, **kwargs: Any) -> Any:
        subprocess.Popen([sys.executable, "-S", "-c", _KILL, str(os.getpid()), str(seconds)])
        setattr(desk_api, "store_answers", real)  # noqa: B010
        return real(*args, **kwargs)

    setattr(desk_api, "store_answers", take)  # noqa: B010


_KILL = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 9)"


# The desk


@dataclass
class Desk:
    """A browser's labelling desk: what it sent, and what it was told is stored."""

    scope: str
    project: int
    samples: list[int] = field(default_factory=list)
    unsent: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    def send(self, port: int, token: str) -> None:
        """Send the first unsent answers.

        Raises:
            OSError, http.client.HTTPException: the dashboard died.
            RuntimeError: it answered with something else than that they are stored.
        """
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_SECONDS)
        cookie = _sign_in(connection, token)
        events = self.unsent[:BATCH]
        body = {"scope": self.scope, "tab": "t", "events": events, "known": [], "want": 2}
        headers = {"x-fedlens-desk": "1", "cookie": cookie, "content-type": "application/json"}
        connection.request("POST", f"/desk/{self.project}/sync", json.dumps(body), headers)
        reply = connection.getresponse()
        said = reply.read()
        if reply.status != 200 or json.loads(said)["error"]:
            raise RuntimeError(f"the desk was told {reply.status}: {said[:300]!r}")
        self.acknowledged |= set(json.loads(said)["acked"])
        self.unsent = [one for one in self.unsent if one["uuid"] not in self.acknowledged]


def _sign_in(connection: http.client.HTTPConnection, token: str) -> str:
    connection.request("GET", f"/?token={token}")
    return str(_read(connection).getheader("set-cookie")).partition(";")[0]


@contextmanager
def _page(port: int, token: str) -> Iterator[None]:
    """A page of the dashboard, drawn once and then left open, as in a browser."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from websockets.sync.client import connect

    cookie = _sign_in(http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_SECONDS), token)
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    headers = {"cookie": cookie, "origin": f"http://127.0.0.1:{port}"}
    asked = BackMsg()
    asked.rerun_script.query_string = ""
    with connect(address, additional_headers=headers, max_size=None) as socket:
        socket.send(asked.SerializeToString())
        drawn = ForwardMsg()
        while drawn.WhichOneof("type") != "script_finished":
            drawn = ForwardMsg.FromString(socket.recv(REPLY_SECONDS))  # type: ignore[arg-type]
        yield


def _read(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    reply = connection.getresponse()
    reply.read()
    return reply


def dashboards_killed(count: int, places: Places) -> Outcomes:
    """Kill a dashboard under a desk that labels, start another on its store, and go on.

    Args:
        count: faults.
        places: where the run lies whose samples are labelled.
    """
    found, source = Outcomes("dashboard killed"), np.random.default_rng(9)
    folder, _, place = _run_to_label(places)
    found.runs = 1
    with open_store(place) as store:
        desk, sent = _new_desk(store), []
        for edge in itertools.islice(itertools.cycle(EDGES), count):
            before = len(found.problems)
            sent += _new_answers(store, desk, source)
            fate = edge, int(source.integers(1, MOST_CALLS))
            _befall(desk, place, folder, fate, found)
            found.problems += [f"{edge}: {p}" for p in _problems(store, place, desk, sent)]
            found.clean += len(found.problems) == before
        _send_all(desk, place, folder)
        found.problems += _problems(store, place, desk, sent, whole=True)
    return found


COMMANDS: dict[str, str] = {
    "accounts list": "accounts list --store {place}",
    "accounts add": "accounts add --store {place} ann-{number} --role annotator --password-stdin",
    "labels export": "labels export {run} --store {place} --project {project} --out {out}.csv",
    "findings": "findings {run} --store {place}",
    "samples": "samples {run} --store {place} --png {out}.png",
    "ledger verify": "ledger verify {run} --store {place}",
    "db check": "db check --store {place}",
    "db upgrade": "db upgrade --store {place}",
    "backup": "backup {run} --out {out}.tar",
    "student": "student {run} --store {place} --images 10 --epochs 1",
}
"""What people run while a dashboard has the store open."""
KILLED = 0.3
"""Share of the commands that are killed at some moment."""
PATIENCE = 120.0


def commands_beside(count: int, places: Places) -> Outcomes:
    """Run commands on a store, and kill some, while a desk labels over it.

    Nothing here keeps the store open, so that a command which leaves may believe to be the last.

    Args:
        count: commands.
        places: where the run lies whose samples are labelled.
    """
    found, source = Outcomes("commands beside a dashboard"), np.random.default_rng(11)
    folder, run, place = _run_to_label(places)
    sent, found.runs = [], 1
    with open_store(place) as store:
        desk = _new_desk(store)
        sent += _new_answers(store, desk, source)
    names = list(itertools.islice(itertools.cycle(source.permutation(sorted(COMMANDS))), count))
    with _dashboard(place, folder, "", 0) as (_, port, token), _page(port, token):
        for number, name in enumerate(names):
            things = {"place": place, "run": run, "number": number, "project": PROJECT}
            out = folder / f"out-{number}"
            words = [word.format(**things, out=out) for word in COMMANDS[name].split()]
            wrong = _label_beside(words, desk, port, token, source)
            with open_store(place) as store:
                wrong += _problems(store, place, desk, sent)
                if len(desk.unsent) < BATCH * MOST_CALLS:
                    sent += _new_answers(store, desk, source)
            found.problems += [f"{name}: {problem}" for problem in wrong]
            found.faults, found.clean = found.faults + 1, found.clean + (not wrong)
            found.where[name] += 1
        while desk.unsent:
            desk.send(port, token)
    with open_store(place) as store:
        found.problems += _problems(store, place, desk, sent, whole=True)
    return found


def _label_beside(
    words: list[str], desk: Desk, port: int, token: str, source: np.random.Generator
) -> list[str]:
    """Label while a command runs, until it ends or is killed; what it said if it failed."""
    killed = source.random() < KILLED
    end = time.monotonic() + (source.uniform(0.0, 3.0) if killed else PATIENCE)
    with tempfile.TemporaryFile("w+") as errors:
        command = subprocess.Popen(
            [sys.executable, "-m", "fedlens.cli", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
        assert command.stdin is not None
        with suppress(BrokenPipeError), command.stdin:
            command.stdin.write("a password of some length\n")
        while command.poll() is None and time.monotonic() < end:
            if desk.unsent:
                desk.send(port, token)
            time.sleep(0.02)
        if command.poll() is None:
            command.kill()
        if desk.unsent:
            desk.send(port, token)
        failed = command.wait() != 0 and not killed
        errors.seek(0)
        return [f"ended with {command.returncode}: {errors.read()[-500:]}"] if failed else []


def _run_to_label(places: Places) -> tuple[Path, Path, str]:
    """A finished run: the folder that it is in, its own, and its store's URL."""
    folder, url = places()
    victim = Victim(folder, settings(tasks__critic__rounds=1), url)
    if victim.suffer(Mishap()) != 0:
        raise RuntimeError("the run whose samples are labelled did not end well")
    return folder, victim.run, url or f"sqlite:///{victim.run / 'store.db'}"


def _new_desk(store: Store) -> Desk:
    (run,) = store.runs()
    record = ProjectRecord(name=PROJECT, run_id=run.run_id, labels=LABELS)
    number = store.create_project(record, even_noise=True)
    owner = store.owner_account("local")
    return Desk(scope_of(store.place, store.project(number), owner.name), number)


def _new_answers(store: Store, desk: Desk, source: np.random.Generator) -> list[dict[str, Any]]:
    """Answers that the desk has to send, enough for the dashboard to come to its end."""
    owner = store.owner_account("local")
    served = store.serve(desk.project, owner.user_id, "t", limit=20).samples
    samples = [one.sample_id for one in served] or desk.samples
    desk.samples = samples
    labels = [label.label_id for label in store.labels(desk.project)]
    made = [
        {
            "uuid": secrets.token_hex(8),
            "kind": "answer",
            "sample_id": samples[int(source.integers(len(samples)))],
            "label_id": labels[int(source.integers(len(labels)))],
            "lead_ms": int(source.integers(1, 9000)),
            "note": "ä" * int(source.integers(0, 400)),
        }
        for _ in range(BATCH * MOST_CALLS)
    ]
    desk.unsent += made
    return made


def _befall(desk: Desk, place: str, folder: Path, fate: tuple[str, int], found: Outcomes) -> None:
    """Have a dashboard that dies take answers until it does."""
    with _dashboard(place, folder, *fate) as (process, port, token):
        with suppress(OSError, http.client.HTTPException):
            while desk.unsent:
                desk.send(port, token)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        killed = process.poll() == -signal.SIGKILL
    found.faults += 1
    found.where[fate[0]] += 1
    if not killed:
        found.problems.append(f"{fate}: the dashboard did not die")


def _send_all(desk: Desk, place: str, folder: Path) -> None:
    with _dashboard(place, folder, "", 0) as (_, port, token):
        while desk.unsent:
            desk.send(port, token)


class _dashboard:
    """A dashboard in a process of its own: the process, its port, its token."""

    def __init__(self, place: str, folder: Path, edge: str, call: int) -> None:
        self._place, self._folder, self._fate = place, folder, (edge, str(call))

    def __enter__(self) -> tuple[subprocess.Popen[str], int, str]:
        token, log = secrets.token_hex(16), self._folder / "dashboard.log"
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._place, token, "0", *self._fate],
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
            )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            if links := [m for m in LINK.finditer(log.read_text()) if token in m[0]]:
                return self._process, int(links[-1][1]), token
            time.sleep(0.05)
        self.__exit__()
        raise RuntimeError(f"no dashboard: {log.read_text()[-500:]}")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


# What must hold


def _problems(
    store: Store, place: str, desk: Desk, sent: Sequence[dict[str, Any]], *, whole: bool = False
) -> Iterator[str]:
    yield from _damage(place)
    stored: dict[str, list[dict[str, Any]]] = {}
    for row in store.annotation_history(desk.project):
        stored.setdefault(row.client_uuid, []).append(
            {
                "uuid": row.client_uuid,
                "kind": "answer",
                "sample_id": row.sample_id,
                "label_id": row.label_id,
                "lead_ms": row.lead_ms,
                "note": row.note or "",
            }
        )
    for one in sent:
        rows = stored.pop(one["uuid"], [])
        needed = whole or one["uuid"] in desk.acknowledged
        if len(rows) > 1 or (needed and not rows):
            yield f"answer {one['uuid']} is stored {len(rows)} times"
        elif rows and rows[0] != one:
            yield f"answer {one['uuid']} is not stored as it was sent"
    if stored:
        yield f"{len(stored)} answers that were never sent"


def _damage(place: str) -> list[str]:
    """What SQLite finds wrong with its own file and its references."""
    engine = make_engine(locate(place))
    try:
        if engine.dialect.name != "sqlite":
            return []
        with engine.connect() as connection:
            said = connection.execute(text("PRAGMA integrity_check")).scalars().all()
            torn = connection.execute(text("PRAGMA foreign_key_check")).all()
        return [f"the file: {line}" for line in said if line != "ok"] + [f"{t}" for t in torn]
    finally:
        engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1:])
