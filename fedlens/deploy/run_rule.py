"""Which runs a SuperLink starts for an operator: those of the fedlens that is installed there.

An operator's token then starts no code of its holder's on the server, only fedlens with settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from fedlens.deploy.bundles import bundle_problem

logger = logging.getLogger("fedlens.deploy.superlink")


def refuse_code(start_run: Callable[..., Any], trusted: Collection[str]) -> Callable[..., Any]:
    """Flower's ``start_run``, refusing bundles that bring code and apps of Flower's hub.

    Args:
        start_run: Flower's own handler.
        trusted: SHA-256 of bundles that may hold code.
    """

    def checked(request: Any, *args: Any, **more: Any) -> Any:
        from flwr.supercore.error import ApiErrorCode, FlowerError

        problem = "it names an app of Flower's hub"
        if not request.app_spec:
            problem = bundle_problem(request.fab.content, request.fab.hash_str, trusted) or ""
        if problem:
            logger.warning("refused a run: %s", problem)
            said = f"The SuperLink refuses the app's bundle: {problem}. Use `fedlens deploy run`."
            raise FlowerError(ApiErrorCode.INVALID_RUN_CONFIG, said, public_details=said)
        return start_run(request, *args, **more)

    return checked
