"""What a request says of itself: where it is from, what it carries, whether others can read it."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

LARGEST_FORM = 16 * 1024  # a long password, each letter of it escaped


def read_cookie(scope: Scope, name: str) -> str:
    """The named cookie's value, or "" where it is absent or the header cannot be read."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            try:
                jar = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return ""
            return jar[name].value if name in jar else ""
    return ""


async def read_body(request: Request) -> bytes:
    """The request's body up to ``LARGEST_FORM`` bytes; no token is longer."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            return b""
    return body


def is_from_here(request: HTTPConnection) -> bool:
    """Whether our own page sent this, as far as the browser says where from."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    if site not in ("same-origin", "none"):
        return False
    if origin is None:
        return True
    # A proxy may ask under another host; no other site's page can have a browser send its header.
    forwarded = request.headers.get("x-forwarded-host")
    hosts = {request.headers.get("host"), forwarded}
    server = request.scope.get("server")
    if forwarded and server:
        # One that forwards a port may name that in place of the page's own origin, and of no other.
        hosts.add(f"localhost:{server[1]}")
    return urlsplit(origin).netloc in hosts


def as_from_here(scope: Scope) -> Scope:
    """A connection that was checked, without its origin: Streamlit knows no proxy's address."""
    headers = [(k, v) for k, v in scope["headers"] if k != b"origin"]
    return {**scope, "headers": [*headers, (b"origin", b"http://localhost")]}


def is_encrypted(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy, wherever that runs.

    What a header says here can only make a visitor's own cookie stricter.
    """
    said = request.headers.get("x-forwarded-proto", ""), request.headers.get("origin", "")
    return request.url.scheme == "https" or said[0] == "https" or said[1].startswith("https://")


def is_page(request: Request) -> bool:
    """Whether a browser asks for a page, and not a program or a page's part."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")
