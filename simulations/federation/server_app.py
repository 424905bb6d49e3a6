"""The ServerApp of a simulation through Flower, which knows what people call the data's classes."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlens.server.app import carry_out
from fedlens.simulations.federation.apps import named_classes

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train one run over the simulated nodes behind ``grid``."""
    carry_out(grid, context, named_classes)
