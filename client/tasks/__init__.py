"""Kinds of task as nodes know them; another package adds one by an entry point of this group."""

from __future__ import annotations

from fedlens.client.tasks.protocol import ClientTaskFactory
from fedlens.foundation.registry import Registry

CLIENT_TASKS: Registry[ClientTaskFactory] = Registry(
    "kind of task",
    "fedlens.client_tasks",
    {
        "frozen": "fedlens.client.tasks.frozen:FrozenLocalTask",
        "focused": "fedlens.client.tasks.focused:FocusedLocalTask",
        "wgan": "fedlens.client.tasks.wgan:WganLocalTask",
        "annotator": "fedlens.client.tasks.annotator:AnnotatorLocalTask",
        "privatizer": "fedlens.client.tasks.privatizer:PrivatizerLocalTask",
        "frequencies": "fedlens.client.tasks.frequencies:FrequenciesLocalTask",
        "moments": "fedlens.client.tasks.moments:MomentsLocalTask",
        "probe": "fedlens.client.tasks.probe:ProbeLocalTask",
        "card": "fedlens.client.tasks.card:CardLocalTask",
    },
)
