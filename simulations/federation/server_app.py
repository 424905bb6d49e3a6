"""The ServerApp of a simulation through Flower, which knows what people call the data's classes."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlens.server.app import carry_out
from fedlens.server.config.tree import Config
from fedlens.simulations.federation.apps import named_classes, simulated_federation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train one run over the simulated nodes behind ``grid``."""
    carry_out(grid, context, _name_classes)


def _name_classes(config: Config) -> tuple[str, ...]:
    names = named_classes(config)
    simulated_federation.cache_clear()  # the records are nodes' to hold, in other processes
    return names
