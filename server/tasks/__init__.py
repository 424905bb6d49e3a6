"""Tasks as the server carries them out; `fedlens.server.config.tasks` has the registry of kinds."""

from __future__ import annotations

from importlib import import_module

from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.tasks.protocol import ServerTask, TaskContext


def server_task(context: TaskContext) -> ServerTask:
    """The task of a context's settings.

    Raises:
        ConfigError: its settings do not fit the federation's data.
        ShapeError: no network is built for such images.
    """
    module, _, name = TASK_KINDS[context.settings.kind].server.partition(":")
    task: ServerTask = getattr(import_module(module), name)(context)
    return task
