"""Naming a fault in users' data by what a run has released, and what could be named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.api.runs import Run, open_run
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from torch import Tensor

    from fedlens.diagnosis.power import PowerRow
    from fedlens.diagnosis.reference import Reference
    from fedlens.diagnosis.report import Diagnosis
    from fedlens.diagnosis.unreferenced import UnreferencedHints
    from fedlens.models.faults.protocol import Fault
    from fedlens.server.config.tree import Config
    from fedlens.server.round.releases import ArchivedRelease


def place_of_diagnosis(run: Run, reference: str | None = None) -> Path:
    """The file that keeps an answer about what the run has released by now.

    To be asked for before the releases are read: a run that goes on releases more meanwhile, of
    which the answer then says nothing.

    Args:
        run: to be diagnosed.
        reference: as it will be given to `diagnose`.
    """
    from fedlens.diagnosis.stored_answers import kept_at

    return kept_at(run.path, run.id, _named(run, reference))


def keep_diagnosis(
    run: Run, found: Diagnosis, reference: str | None = None, *, place: Path | None = None
) -> Path | None:
    """Write an answer into the run's folder, with each fault shown on the run's samples.

    Args:
        run: that was diagnosed.
        found: what was found.
        reference: as it was given to `diagnose`.
        place: of `place_of_diagnosis`; None for a run that has released nothing since.

    Returns:
        The file; None where the folder cannot be written to.
    """
    from fedlens.diagnosis.stored_answers import KeptAnswer, keep_answer

    named = _named(run, reference)
    said = found.to_json()
    path = place or place_of_diagnosis(run, reference)
    answer = KeptAnswer(named, said, _looks(run, said["findings"]))
    return path if keep_answer(path, answer) else None


def _named(run: Run, reference: str | None) -> str:
    """The reference as it is kept: empty for the run's own data."""
    name = run.config.data.name
    own = reference is None or (reference == name and has_public_records(name))
    return "" if own else str(reference)


def _looks(run: Run, findings: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Pictures of the findings; none where the run's store has no samples or cannot be read."""
    from fedlens.dashboard.faults.looks import pictures
    from fedlens.dashboard.samples.batches import load_examples
    from fedlens.diagnosis.stored_answers import MOST_PICTURED
    from fedlens.store import StoreError, open_store

    if not findings:
        return {}
    try:
        with open_store(run.store) as store:
            classes = store.requested_classes(run.id)
            samples = load_examples(store, run.id, classes)
    except StoreError:
        return {}
    asked = {"samples": samples, "classes": max(classes, default=0) + 1, "most": MOST_PICTURED}
    return {one["fault"]: pictures(one, asked) for one in findings}


SAMPLES = 1000
"""Faithful samples that are looked at."""


def hints(
    run: Run | Path | str, *, sound: Run | Path | str | None = None, count: int = SAMPLES
) -> UnreferencedHints:
    """Name the family of faults that a run's faithful samples show by themselves, if any.

    Post-processing of samples: it costs no privacy. A hint, no finding: a probe confirms it. See
    `fedlens.diagnosis.unreferenced` for what it can tell and what not.

    Args:
        run: the run, or its directory.
        sound: a run over the same kind of data that is known to be sound, to learn how many votes
            such data gives. None: the levels of handwritten digits, which say little of others.
        count: faithful samples that are drawn.

    Raises:
        WrongUse: ``count`` is too small for the run's classes.
        FedlensError: there is no such run, or it has no faithful samples.
    """
    from fedlens.diagnosis.unreferenced import levels_of, unreferenced

    if count < 1:
        raise WrongUse(f"count {count}: give at least 1")
    levels = None if sound is None else levels_of(*_faithful(sound, count))
    return unreferenced(*_faithful(run, count), levels)


def _faithful(run: Run | Path | str, count: int) -> tuple[Tensor, Tensor]:
    """As float32 [n, c, h, w] in [-1, 1], and int64 [n]."""
    import torch

    from fedlens.models.shapes import from_pixels

    chosen = run if isinstance(run, Run) else open_run(run)
    made = chosen.draw(count, kind="faithful", seed=chosen.config.seed)
    return from_pixels(made.images), torch.as_tensor(made.labels)


REFERENCE_IMAGES = 2000
"""Images of a reference that are looked at; more take as much longer."""
Observe = Callable[[int, int], None]
Begin = Callable[[str], None]
MOST_RECORDS = 32
"""Of a user, that are reckoned with beforehand."""
_DRAW = 13


def diagnose(
    run: Run | Path | str,
    *,
    reference: Run | Path | str | None = None,
    images: int = REFERENCE_IMAGES,
    annotator: bool = True,
    faults: Sequence[str | Path | Fault] = (),
    progress: Observe | None = None,
    on_stage: Begin | None = None,
    on_look: Begin | None = None,
) -> Diagnosis:
    """Name the faults that a run's released sums show, with the share of users that has each.

    All of it is post-processing of noised sums: it costs no privacy.

    Args:
        run: the run, or its directory.
        reference: records of the users' kind without these faults: the name of a public data set,
            whose test images are taken, or an earlier run of the same federation, whose released
            samples stand for them and whose sums are subtracted. None: the test images of the data
            set that the run names, where it is public. To name data of one's own is to declare
            them public: their test images are records that no ledger counts.
        images: how many of the reference's images are looked at.
        annotator: whether its releases are read too. They take more than half of the time, and show
            blur, noise, sharpening and few grey levels in half to a third of the users that warm-up
            and critic alone need.
        faults: more that are looked for: faults, names of faults of the library that come together
            (``rotate90+dim``), or Python files that define faults, which are run.
        progress: told how many hypotheses are done, and how many there are.
        on_stage: told what it turns to: ``reference``, ``evidence``, ``look``, ``fits``,
            ``findings``, ``omnibus``.
        on_look: told, seconds after the beginning, what stands out by few images, in words. That
            is no finding: the answer may be another.

    Returns:
        Findings, surest first; none where the reference is of another kind than the users' data.

    Raises:
        WrongUse: the reference cannot be used, the run kept no release that can be read, or its
            sums are trimmed.
        FedlensError: there is no such run or data set.
    """
    from fedlens.api.probes import why_not_asked
    from fedlens.diagnosis.diagnose import diagnose as diagnosed
    from fedlens.diagnosis.stored_answers import FOLDER, is_public
    from fedlens.models.faults.library import find_faults

    if images < 1:
        raise WrongUse(f"images {images}: give at least 1")
    chosen = run if isinstance(run, Run) else open_run(run)
    begin = on_stage or (lambda _: None)
    more = list(find_faults(faults))
    begin("reference")
    earlier = _earlier_run(reference)
    for one in filter(None, (chosen, earlier)):
        _check_sums(one.config)
    before: list[ArchivedRelease] = []
    if earlier is None:
        name = _public_name(chosen.config) if reference is None else str(reference)
        found, public = public_reference(name, chosen.config, images), is_public(name)
    else:  # its samples follow from what it has released
        found, public = samples_reference(earlier, images), True
    begin("evidence")
    if earlier is not None:
        before = _released(earlier, annotator)
    released = _released(chosen, annotator)
    said = diagnosed(
        released,
        found,
        before=before,
        more=more,
        on_step=progress,
        on_stage=on_stage,
        on_look=on_look,
        guessed=chosen.config.split.active or (earlier is not None and earlier.config.split.active),
        stored_at=chosen.path / FOLDER if public else None,
        class_names=_class_names(chosen),
    )
    findings = (
        replace(one, probe_refusal=why_not_asked(chosen.config, one.probe) if one.probe else "")
        for one in said.findings
    )
    return replace(said, findings=tuple(findings))


def _class_names(run: Run) -> tuple[str, ...]:
    """What people call the run's classes; nothing where its store cannot be read."""
    from fedlens.store import StoreError, open_store

    try:
        with open_store(run.store) as store:
            return store.run(run.id).class_names
    except StoreError:
        return ()


def has_public_records(name: str) -> bool:
    """Whether anybody may look at the records of a data set; not where nothing is known of it."""
    from fedlens.data.registry import DATASETS

    kind = name.partition(":")[0]
    return kind in DATASETS and DATASETS[kind].public


def _public_name(config: Config) -> str:
    """The data set that a run names, if its test images are public.

    Raises:
        WrongUse: they are somebody's records.
    """
    from fedlens.client.contract import PREFIX

    name = config.data.name
    at_nodes = name.partition(":")[0] == PREFIX
    if not has_public_records(name) and not at_nodes:
        raise WrongUse(
            f"reference: the run's data, {name}, are not known to be public, and their test images "
            "are real records in no budget: name a public data set, an earlier run or 'none'; or "
            "give that name itself as the reference, if anybody may see those images"
        )
    return name


def _check_sums(config: Config) -> None:
    """Refuse trimmed sums: what few nodes' users have is cut off, and no share could be told."""
    if share := config.aggregation.trimmed_share:
        raise WrongUse(
            f"aggregation.trimmed_share = {share:g} cuts off what few nodes' users have, "
            "so no fault's share of users can be told: give a run that trims nothing"
        )


def _released(run: Run, annotator: bool) -> list[ArchivedRelease]:
    from fedlens.server.config import needs
    from fedlens.server.config.tasks import TASK_KINDS
    from fedlens.server.round.releases import load_releases

    found, kinds = load_releases(run.path), TASK_KINDS
    # a label model's features take longer than all others'
    slow = {kind for kind in kinds if needs.LABELS in kinds[kind].config.provides}
    return [one for one in found if annotator or one.request.kind not in slow]


def power(
    preset: str = "demo",
    *,
    config: Config | None = None,
    reference: str | None = None,
    users: Sequence[int] = (1000, 3000, 10_000),
    epsilons: Sequence[float] = (0.5, 1.0, 2.0, 8.0),
    images: int = REFERENCE_IMAGES,
    progress: Observe | None = None,
) -> list[PowerRow]:
    """The smallest share of users in which a diagnosis would find each fault, before any run.

    Args:
        preset: the schedule; all of its releases that can be read are reckoned with, their
            samples being reference images.
        config: a whole configuration instead.
        reference: name of a data set whose test images stand for users' records; the schedule's
            own by default, where it is public.
        users: federations' sizes.
        epsilons: DP ε of the whole schedule, at its own δ (or 1/N where that is less).
        images: how many of the reference's images are looked at.
        progress: told how many hypotheses are done, and how many there are.

    Raises:
        WrongUse: the schedule has no task of kind ``frozen``, its sums are trimmed, its data are
            not known to be public and no reference is named, or an argument is out of range.
    """
    from fedlens.api.presets import preset_config
    from fedlens.diagnosis.power import power_of

    if not users or min(users) < 1:
        raise WrongUse(f"users {list(users)}: give numbers of at least 1")
    if not epsilons or not min(epsilons) > 0:
        raise WrongUse(f"epsilons {list(epsilons)}: give numbers above 0")
    chosen = config or preset_config(preset)
    _check_sums(chosen)
    name = _public_name(chosen) if reference is None else reference
    found = public_reference(name, chosen, images)
    chosen = chosen.updated({"data.records_per_user": _records(chosen)})
    return power_of(chosen, found, users, epsilons, progress)


def _records(config: Config) -> int:
    """What a user contributes: as declared, or an equal share of the data set."""
    from fedlens.data.registry import load

    data = config.data
    declared = data.records_per_user or data.samples_per_user
    if not declared:
        declared = len(load(data.name, data.dir or None).train_labels) // data.users
    return max(1, min(declared, MOST_RECORDS))


def _earlier_run(reference: Run | Path | str | None) -> Run | None:
    if reference is None or isinstance(reference, Run):
        return reference
    return open_run(reference) if (Path(reference) / "config.toml").is_file() else None


def public_reference(name: str, config: Config, images: int) -> Reference:
    """Test images of a public data set, with its shares of classes, drawn by a public seed.

    Raises:
        DatasetError: there is no such data set.
    """
    import numpy as np
    import torch

    from fedlens.data.registry import load
    from fedlens.diagnosis.reference import Reference, like_all
    from fedlens.foundation.unlabelled import OWN_OR
    from fedlens.models.shapes import from_pixels

    place = config.data.dir or None if name == config.data.name else None
    partly = config.data.labels.startswith(OWN_OR)
    found = load(name, place, labelled=not config.data.unlabelled, partly=partly)
    whole = len(found.test_labels)
    rows = like_all(found.test_labels, images, np.random.default_rng(_DRAW))
    labels = torch.from_numpy(found.test_labels[rows])
    drawn = from_pixels(found.test_images[rows])
    return Reference(found.name, drawn, labels, found.classes, whole)


def samples_reference(run: Run, images: int) -> Reference:
    """Fresh faithful samples of a run, which stand for its users.

    Guidance takes out what is odd: pushed through guided samples, a fault that 30% of users had was
    said to be in 22%.

    Raises:
        FedlensError: the run kept no generator.
    """
    import torch

    from fedlens.diagnosis.reference import Reference
    from fedlens.server.generation.compute import training_threads
    from fedlens.simulations.run_artifacts import fresh_samples, kept_sampler

    torch.set_num_threads(training_threads(run.config))
    sampler = kept_sampler(run.directory, purpose="faithful")
    drawn, labels = fresh_samples(sampler, images, run.config.seed)
    return Reference(f"run {run.path.name}", drawn, labels, sampler.shown_classes)
