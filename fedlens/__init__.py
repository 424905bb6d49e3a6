"""Look at, debug, label and train on federated data without anyone seeing it.

    import fedlens

    run = fedlens.simulate("demo", out="runs/first")
    print(run.statement())              # both notions of privacy, with what they assume
    samples = run.samples()             # uint8 images [n, c, h, w], classes, where they are from
    training_set = samples.torch()      # a torch.utils.data.Dataset

Importing this package loads neither PyTorch nor Flower: each name brings what it needs when it is
first used. Every error that a caller can cause derives from `FedlensError`, whose message names
what was wrong and the fix; `WrongUse` is for arguments.

**What stays stable.** The names in ``fedlens.__all__``, with their parameters, return types, fields
and errors, follow semantic versioning: before 1.0 a minor version may change them and the changelog
says how to fix a caller; from 1.0 on only a major version may, after one minor version of
warnings. The same holds for the command's verbs, flags, exit statuses and JSON keys, for settings,
for entry points of plug-ins, and for run directories (through their schema version). Everything
else (other packages of this distribution, names with an underscore, printed text, figures) may
change with any version. A privacy figure only ever changes to be right or tighter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlens.foundation.errors import ExitStatus, FedlensError, WrongUse
from fedlens.foundation.offline import stay_offline

if TYPE_CHECKING:
    from fedlens.api import privatizer
    from fedlens.api.audits import AuditReport, audit
    from fedlens.api.backups import backup, restore
    from fedlens.api.budgets import Budget, Calibration, budget, calibrate
    from fedlens.api.cards import CardReport, card, read_card
    from fedlens.api.diagnoses import diagnose, hints, power
    from fedlens.api.label_curves import write_label_model
    from fedlens.api.nodes import NodePreparation, check_node, prepare_node
    from fedlens.api.presets import preset_names
    from fedlens.api.probes import ProbeAnswer, probe, probe_price
    from fedlens.api.runs import Run, open_run
    from fedlens.api.samples import Provenance, Samples
    from fedlens.api.simulations import resume, simulate

    __version__: str

__all__ = [
    "AuditReport",
    "Budget",
    "Calibration",
    "CardReport",
    "ExitStatus",
    "FedlensError",
    "NodePreparation",
    "ProbeAnswer",
    "Provenance",
    "Run",
    "Samples",
    "WrongUse",
    "__version__",
    "audit",
    "backup",
    "budget",
    "calibrate",
    "card",
    "check_node",
    "diagnose",
    "hints",
    "open_run",
    "power",
    "prepare_node",
    "preset_names",
    "privatizer",
    "probe",
    "probe_price",
    "read_card",
    "restore",
    "resume",
    "simulate",
    "write_label_model",
]

_PLACES = {
    "AuditReport": "audits",
    "audit": "audits",
    "backup": "backups",
    "restore": "backups",
    "Budget": "budgets",
    "Calibration": "budgets",
    "budget": "budgets",
    "calibrate": "budgets",
    "CardReport": "cards",
    "card": "cards",
    "read_card": "cards",
    "diagnose": "diagnoses",
    "power": "diagnoses",
    "hints": "diagnoses",
    "NodePreparation": "nodes",
    "check_node": "nodes",
    "prepare_node": "nodes",
    "preset_names": "presets",
    "ProbeAnswer": "probes",
    "probe": "probes",
    "probe_price": "probes",
    "Run": "runs",
    "open_run": "runs",
    "Provenance": "samples",
    "Samples": "samples",
    "resume": "simulations",
    "simulate": "simulations",
    "write_label_model": "label_curves",
}

stay_offline()


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fedlens")
    if name == "privatizer":
        return import_module("fedlens.api.privatizer")
    if name not in _PLACES:
        raise AttributeError(f"module 'fedlens' has no attribute {name!r}")
    return getattr(import_module(f"fedlens.api.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
