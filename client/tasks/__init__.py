"""Kinds of task as nodes know them; another package adds one by an entry point of this group."""

from __future__ import annotations

from client.tasks.protocol import ClientTaskFactory
from foundation.registry import Registry

CLIENT_TASKS: Registry[ClientTaskFactory] = Registry(
    "kind of task",
    "fedlens.client_tasks",
    {
        "frozen": "client.tasks.frozen:FrozenLocalTask",
        "focused": "client.tasks.focused:FocusedLocalTask",
        "wgan": "client.tasks.wgan:WganLocalTask",
        "annotator": "client.tasks.annotator:AnnotatorLocalTask",
        "privatizer": "client.tasks.privatizer:PrivatizerLocalTask",
        "frequencies": "client.tasks.frequencies:FrequenciesLocalTask",
        "moments": "client.tasks.moments:MomentsLocalTask",
        "probe": "client.tasks.probe:ProbeLocalTask",
    },
)
