"""Names that several parts of a deployment share; light, so that a service loads no more."""

from __future__ import annotations

FLOWER = "1.41.0"
"""The Flower whose extension points are used."""
HEALTH, METRICS, STATUS = "/health", "/metrics", "/fedlens/status"
CONTRACT = "federation.toml"
"""File of the owners' contract in a machine's folder."""
OWN_DATA = "federation"
"""``data.name`` of a run that goes by the contract in the SuperLink's folder."""
