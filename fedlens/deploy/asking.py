"""Asking a SuperLink how it goes, over TLS, by an operator's token or from its own machine."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from fedlens.deploy.layout import DeployError, DeploySettings, OperatorSettings, SuperLinkSettings
from fedlens.foundation.errors import FedlensError


class Unreachable(FedlensError):
    """A SuperLink that gave no answer; the message says why."""


class Address(NamedTuple):
    """Where a SuperLink is, and how it is asked."""

    place: str
    """``HOST:PORT``."""
    authority: Path
    token: str = ""


def address_of(folder: Path, settings: DeploySettings) -> Address:
    """The SuperLink of a folder of any kind."""
    if isinstance(settings, SuperLinkSettings):
        host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
        return Address(f"{host}:{settings.port}", folder / settings.ca)
    token = read_token(folder / settings.token) if isinstance(settings, OperatorSettings) else ""
    return Address(settings.superlink, folder / settings.ca, token)


def read_token(path: Path) -> str:
    """An operator's token from its file.

    Raises:
        DeployError: it cannot be read, or others can read it too.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise DeployError(f"{path} can be read by others: chmod 600 {path}")
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise DeployError(f"{path}: {error.strerror}; put the operator's token there") from None
    except UnicodeDecodeError:
        raise DeployError(f"{path} holds no token: put the operator's there") from None


def ask(address: Address, page: str, timeout: float = 10.0) -> Any:
    """The JSON of one of the SuperLink's pages.

    Raises:
        Unreachable: nothing answers there, its certificate is not trusted, or it refuses.
    """
    request = urllib.request.Request(f"https://{address.place}{page}")
    if address.token:
        request.add_header("authorization", f"Bearer {address.token}")
    try:
        context = ssl.create_default_context(cafile=str(address.authority))
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise Unreachable(f"the SuperLink at {address.place} refuses ({error.code})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(f"the SuperLink at {address.place} does not answer: {reason}") from None
