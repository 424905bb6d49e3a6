"""Sign-in through a team's own identity provider, by OpenID Connect's code flow.

The dashboard asks the provider who a visitor is and nothing else. Whether that person may come in,
and as what, says the account of that name in the store: a name without an account is no one's.

What one sign-in needs until it ends (state, nonce, the verifier of RFC 7636) lies in a cookie of
the visitor's browser, for ten minutes. The provider's answer is checked against it, so that no one
is signed in by an answer to somebody else's question. Nothing of it is stored or logged.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fedlens.dashboard.widgets.options import DashboardError
from fedlens.foundation.toml import parse_toml

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

START_PATH, CALLBACK_PATH = "/login-provider", "/login-answer"
STARTED_SECONDS = 600
"""So long may a visitor take at the provider."""
PATIENCE_SECONDS = 10.0
"""That each answer of the provider is waited for."""
LARGEST_ANSWER = 2**20
KNOWN_SECONDS, FAILED_SECONDS = 3600.0, 5.0
"""So long is what it answered remembered, and that it did not."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Of signatures that an identity may carry: those by a key that only the provider has."""
LEEWAY_SECONDS = 60
"""By which the provider's clock may differ from ours."""
_KEYS = ("issuer", "client_id", "client_secret", "address", "claim")
_NEEDED = _KEYS[:4]


class ProviderError(Exception):
    """The provider's answer is not one that anybody can be signed in by."""


@dataclass(frozen=True)
class Started:
    """A sign-in that has begun; for the visitor's own cookie."""

    state: str
    nonce: str
    verifier: str
    then: str
    """Where the visitor was going."""

    def packed(self) -> str:
        """As a cookie's value."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def unpacked(cls, value: str) -> Started | None:
        """From a cookie's value; None for anything else."""
        try:
            held = json.loads(base64.urlsafe_b64decode(value.encode()))
            parts = {name: held[name] for name in ("state", "nonce", "verifier", "then")}
        except (ValueError, KeyError, TypeError):
            return None
        return cls(**parts) if all(isinstance(part, str) for part in parts.values()) else None


@dataclass
class Provider:
    """A provider, and this dashboard's registration with it."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    address: str
    """Of this dashboard, as browsers see it."""
    claim: str = "email"
    """Of the identity: what it says there is an account's name."""
    _found: dict[str, tuple[float, dict[str, Any] | None]] = field(
        default_factory=dict, init=False, repr=False
    )
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def encrypted(self) -> bool:
        """Whether browsers reach the dashboard over TLS, wherever that ends."""
        return self.address.startswith("https://")

    @property
    def host(self) -> str:
        """Where visitors are sent, for people."""
        return urlsplit(self.issuer).netloc

    def start(self, then: str = "") -> tuple[str, Started]:
        """The provider's address for one visitor, and what to remember of it.

        Raises:
            ProviderError: it cannot be reached, or is not the one that was named.
        """
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        started = Started(state, nonce, verifier, then)
        with self._session(started) as session:
            url, _ = session.create_authorization_url(
                self._metadata()["authorization_endpoint"],
                state=started.state,
                nonce=started.nonce,
                code_verifier=started.verifier,
            )
        return str(url), started

    def finish(self, started: Started | None, state: str, code: str) -> str:
        """The name in the identity that the provider gives for a code.

        Args:
            started: what the visitor's browser remembers; None for nothing.
            state: that came back with the code.
            code: of the provider.

        Raises:
            ProviderError: it is an answer to another question, the provider refuses the code, or
                the identity is forged, over, for others or without a name.
        """
        if started is None:
            raise ProviderError("it took too long, or was begun in another browser")
        if not hmac.compare_digest(started.state.encode(), state.encode()):
            raise ProviderError("an answer to another question")
        if not code:
            raise ProviderError("it was refused or cancelled there")
        with _plain("the provider refuses the code"), self._session(started) as session:
            token = session.fetch_token(
                self._metadata()["token_endpoint"],
                code=code,
                code_verifier=started.verifier,
                grant_type="authorization_code",
                timeout=PATIENCE_SECONDS,
                allow_redirects=False,
            )
        identity = token.get("id_token")
        if not isinstance(identity, str):
            raise ProviderError("no identity in the answer")
        return self._name(self._claims(identity), started.nonce)

    def _session(self, started: Started) -> Any:
        from authlib.integrations.requests_client import OAuth2Session

        session = OAuth2Session(
            self.client_id,
            self.client_secret,
            scope="openid email profile",
            redirect_uri=self.address.rstrip("/") + CALLBACK_PATH,
            code_challenge_method="S256",
            state=started.state,
        )
        session.stream = True  # or all of an answer would be read before anybody looks at its size
        session.hooks["response"].append(_take_short_answer)
        return session

    def _claims(self, identity: str) -> dict[str, Any]:
        """What a signed identity says; a key that is not known is asked for once more."""
        from joserfc import jwt

        with _plain("the identity is not signed by the provider"):
            try:
                return dict(jwt.decode(identity, self._keys(), list(ALGORITHMS)).claims)
            except Exception:
                self._forget("keys")
                return dict(jwt.decode(identity, self._keys(), list(ALGORITHMS)).claims)

    def _name(self, claims: dict[str, Any], nonce: str) -> str:
        from authlib.oidc.core import CodeIDToken

        options = {
            "iss": {"essential": True, "values": [self.issuer]},
            "aud": {"essential": True, "values": [self.client_id]},
        }
        with _plain("the identity is over, or meant for others"):
            checked = CodeIDToken(
                claims, {}, options, {"nonce": nonce, "client_id": self.client_id}
            )
            checked.validate(leeway=LEEWAY_SECONDS)
        name = claims.get(self.claim)
        if not isinstance(name, str) or not name:
            raise ProviderError(f"the identity has no claim {self.claim!r}")
        if self.claim == "email" and claims.get("email_verified") is not True:
            raise ProviderError("the provider has not verified the e-mail address")
        return name

    def _metadata(self) -> dict[str, Any]:
        place = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = self._asked("metadata", place)
        endpoints = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        open_ones = [name for name in endpoints if not _is_private(str(found.get(name, "")))]
        if found.get("issuer") == self.issuer and not open_ones:
            return found
        self._forget("metadata")
        if open_ones:
            raise ProviderError(f"the provider's {open_ones[0]} is not encrypted")
        raise ProviderError("the provider is not the one that was named")

    def _keys(self) -> KeySet:
        from joserfc.jwk import KeySet

        return KeySet.import_key_set(self._asked("keys", str(self._metadata()["jwks_uri"])))  # type: ignore[arg-type]

    def _asked(self, what: str, url: str) -> dict[str, Any]:
        """An answer of the provider, asked for once an hour; after a failure not for some seconds.

        Whoever finds it wrong forgets it.
        """
        with self._lock:
            known = self._found.get(what)
            if known is not None and known[0] > time.monotonic():
                if known[1] is None:
                    raise ProviderError("the provider cannot be reached")
                return known[1]
            self._found[what] = time.monotonic() + FAILED_SECONDS, None
            found = self._fetched(url)
            self._found[what] = time.monotonic() + KNOWN_SECONDS, found
            return found

    def _fetched(self, url: str) -> dict[str, Any]:
        import requests

        with _plain("the provider cannot be reached"):
            answer = requests.get(url, timeout=PATIENCE_SECONDS, allow_redirects=False, stream=True)
            answer.raise_for_status()
            return dict(json.loads(_short_body(answer)))

    def _forget(self, what: str) -> None:
        with self._lock:
            self._found.pop(what, None)


def _short_body(answer: Any) -> bytes:
    """What an answer says, where that is not too long; no more of it is read."""
    body = answer.raw.read(LARGEST_ANSWER + 1, decode_content=True)
    if len(body) > LARGEST_ANSWER:
        raise ProviderError("the provider's answer is too long")
    return bytes(body)


def _take_short_answer(answer: Any, **_: object) -> None:
    """Have a streamed answer's content be read already, up to the size that it may have."""
    answer._content = _short_body(answer)


@contextmanager
def _plain(words: str) -> Iterator[None]:
    """Whatever goes wrong inside is said in our own words: another program's may hold secrets."""
    try:
        yield
    except ProviderError:
        raise
    except Exception:
        raise ProviderError(words) from None


def read_provider(path: Path) -> Provider:
    """The registration in a TOML file.

    Raises:
        DashboardError: there is no such file, others can read it, or something in it is missing,
            unknown or not encrypted.
    """
    said = f"--oidc {path}"
    if find_spec("authlib") is None:
        raise DashboardError(f"{said}: needs the package authlib: pip install 'fedlens[oidc]'")
    if not path.is_file():
        raise DashboardError(f"{said}: there is no such file")
    if path.stat().st_mode & 0o077:
        raise DashboardError(f"{said}: it holds a secret and others can read it: chmod 600 {path}")
    try:
        given = parse_toml(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DashboardError(f"{said}: it is no TOML: {error}") from None
    return Provider(*_checked(given, said))


def _checked(given: dict[str, Any], said: str) -> list[str]:
    """Values of the settings, of which none is missing, unknown or read on the way."""
    if unknown := [name for name in given if name not in _KEYS]:
        raise DashboardError(f"{said}: {unknown[0]} is unknown: it takes {', '.join(_KEYS)}")
    found = {name: given.get(name, "" if name in _NEEDED else "email") for name in _KEYS}
    for name, value in found.items():
        if not isinstance(value, str) or not value.strip():
            raise DashboardError(f"{said}: give {name} as a text")
        if name in ("issuer", "address") and not _is_private(value):
            raise DashboardError(
                f"{said}: {name} = {value!r}: give an address that begins with https:// "
                "(http:// on this machine alone)"
            )
    return list(found.values())


def _is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    return bool(parts.netloc) and (parts.scheme == "https" or (parts.scheme == "http" and here))
