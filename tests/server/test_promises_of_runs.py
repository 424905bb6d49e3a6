"""What a run of each kind promises is the same on every machine, whatever its processor rounds.

What it learns is not: that it learns the same twice, on every transport and device, is compared on
the machine that runs the tests (`test_devices`, `tests/transports`). After a change that is meant,
``python -m pytest -s tests/server/test_promises_of_runs.py`` prints what to record.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flwr.app import ArrayRecord
from run_tasks import RUNS

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import client_app

PROMISES = json.loads((Path(__file__).parent / "promises_of_runs.json").read_text("utf-8"))


class Weighed:
    """A ClientApp that notes the sizes of what goes in and out, in bytes of arrays."""

    def __init__(self):
        self.messages = []

    def __call__(self, message, context):
        asked = _bytes_of(message)
        reply = client_app(message, context)
        self.messages.append([message.metadata.message_type, asked, _bytes_of(reply)])
        return reply


def _bytes_of(message) -> int:
    records = message.content.values() if message.has_content() else ()
    return sum(
        len(array.data)
        for record in records
        if isinstance(record, ArrayRecord)
        for array in record.values()
    )


def promises_of(folder: Path, messages: list[list[object]]) -> dict[str, object]:
    """Privacy events in their order, the shapes that a state has, the sizes of all messages."""
    directory = RunDirectory(folder)
    snapshot = directory.load_state()
    assert snapshot is not None
    floats = [v for v in snapshot.arrays.values() if v.dtype.kind == "f" and v.size > 1]
    events = [(entry.round, entry.event.to_json()) for entry in Ledger.verify(directory.ledger)]
    return {
        "events": [[number, *(str(v) for v in event.values())] for number, event in events],
        "shapes": sorted([v.dtype.str, *v.shape] for v in floats),
        "messages": sorted({tuple(m) for m in messages}),
    }


@pytest.mark.parametrize("name", RUNS)
def test_a_run_costs_asks_and_keeps_what_was_recorded(
    name, small_config, run_small, a_filter_in_no_time, few_images_for_the_frame, tmp_path
):
    weighed = Weighed()
    run_small(small_config(**{k.replace(".", "__"): v for k, v in RUNS[name].items()}), app=weighed)
    found = json.loads(json.dumps(promises_of(tmp_path / "run", weighed.messages)))
    print(json.dumps({name: found}))
    assert found == PROMISES[name]
