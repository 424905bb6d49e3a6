"""The filters above the sample grid. What they are set to stands in the address."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from fedlens.dashboard.access.session import choice, store
from fedlens.dashboard.samples.batches import KINDS, rank_batches
from fedlens.store import RunRecord, SampleFilter, StoredBatch

ALL = "all"


@dataclass(frozen=True)
class SampleSelection:
    """Which samples are shown."""

    filter: SampleFilter
    batch: StoredBatch | None
    """The batch that they are of; None for all of the run."""

    def total(self) -> int:
        """How many they are; a whole batch, which may be of a million, is not counted anew."""
        given = (self.filter.requested_class, self.filter.label_id, self.filter.tag)
        narrowed = any(one is not None for one in given)
        if self.batch is None or narrowed:
            return store().count_samples(self.filter)
        return self.batch.count


def batch_title(batch: StoredBatch) -> str:
    """A batch in words."""
    return f"Round {batch.round}: {batch.count:,} {KINDS[batch.purpose][1]}"


def label_options(run_id: str) -> dict[int, str]:
    """The labels of all projects over the run, by id."""
    return {
        label.label_id: f"{project.name}: {label.name}"
        for project in store().projects()
        if project.run_id == run_id
        for label in store().labels(project.project_id)
    }


def choose_samples(run: RunRecord) -> SampleSelection:
    """Show the filters; give back what they leave."""
    labels = label_options(run.run_id)
    tags = store().tags(run.run_id)
    which, requested, label, tagged = st.columns([2, 1, 1, 1])
    with which:
        batch = choose_batch(run)
    with requested:
        classes = classes_of(run.run_id)
        number = ALL
        if classes:
            number = choice("Requested class", [ALL, *map(str, classes)], _or_all, "class")
        else:
            st.caption("These samples are unlabelled.")
    with label:
        given = choice(
            "Label given",
            [ALL, *map(str, labels)],
            lambda one: "All" if one == ALL else labels[int(one)],
            "label",
        )
    with tagged:
        tag = choice(
            "Tag", [ALL, *tags], lambda o: "All" if o == ALL else f"{o} ({tags[o]:,})", "tag"
        )
    wanted = SampleFilter(
        run_id=run.run_id,
        batch_id=None if batch is None else batch.batch_id,
        requested_class=None if number == ALL else int(number),
        label_id=None if given == ALL else int(given),
        tag=None if tag == ALL else tag,
    )
    return SampleSelection(wanted, batch)


def classes_of(run_id: str) -> list[int]:
    """The classes of a run's samples; looked for once for each number of batches."""
    return _classes(store().place, run_id, len(store().batches(run_id)))


@st.cache_data(max_entries=256, show_spinner=False)
def _classes(place: str, run_id: str, batches: int) -> list[int]:
    return store().requested_classes(run_id)


def choose_batch(
    run: RunRecord, parameter: str = "batch", *, with_all: bool = True
) -> StoredBatch | None:
    """A picker of a run's batches; None for all of them, or where there is none."""
    by_id = {str(one.batch_id): one for one in rank_batches(store().batches(run.run_id))}
    options = [*by_id, *([ALL] if with_all or not by_id else [])]
    chosen = choice(
        "Batch",
        options,
        lambda one: "All batches" if one == ALL else batch_title(by_id[one]),
        parameter,
    )
    return by_id.get(chosen)


def _or_all(option: str) -> str:
    return "All" if option == ALL else option
