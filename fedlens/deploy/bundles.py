"""Which app bundle a node takes: one without code, or one whose hash its operator trusts.

A bundle without code only names the app that is installed on the node, so what runs there is what
the node's organisation installed and checked, whatever the server sends.
"""

from __future__ import annotations

import hashlib
import io
import logging
import zipfile
from collections.abc import Callable, Collection
from typing import Any

from fedlens.foundation.toml import parse_toml

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


COMPONENTS = {"serverapp": "fedlens.server.app:app", "clientapp": "fedlens.client.app:app"}
"""The components of a bundle of a deployment."""
FILES = frozenset({"pyproject.toml", ".info/CONTENT"})
LARGEST = 1 << 20


def bundle_problem(content: bytes, declared: str, trusted: Collection[str]) -> str | None:
    """Why a node refuses a bundle; None where it takes it.

    Args:
        content: the bundle, a zip archive.
        declared: the SHA-256 that the server gave for it.
        trusted: SHA-256 of bundles that may hold code.
    """
    digest = hashlib.sha256(content).hexdigest()
    if digest != declared:
        return "its content is not what its hash says"
    if digest in {line.lower() for line in trusted}:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if strange := sorted(set(names) - FILES):
                return f"it brings files of its own ({strange[0]!r}), and {digest} is not trusted"
            if len(names) != len(set(names)) or sum(e.file_size for e in entries) > LARGEST:
                return "it is larger than a bundle without code can be"
            project = parse_toml(archive.read("pyproject.toml").decode())
    except Exception:  # zipfile and zlib raise many kinds on damaged archives
        return "it cannot be read"
    return _project_problem(project)


def _project_problem(project: dict[str, object]) -> str | None:
    tool = project.get("tool")
    flower = tool.get("flwr") if isinstance(tool, dict) else None
    app = flower.get("app") if isinstance(flower, dict) else None
    components = app.get("components") if isinstance(app, dict) else None
    if components != COMPONENTS:
        return f"it names other code than the installed fedlens: {components!r:.200}"
    return None
