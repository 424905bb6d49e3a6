"""Certificates that TLS accepts, and what is said of those that it would not."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from fedlens.deploy.certificates import certificate_problems, issue_server, make_authority
from fedlens.deploy.initialise import renew

NOW = datetime.now(UTC)


def handshake(authority, certificate, key, name):
    """Both ends of a TLS connection in memory."""
    client, server = (ssl.SSLContext(p) for p in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
    client.load_verify_locations(authority)
    server.load_cert_chain(certificate, key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_tls_takes_the_certificate_for_its_names_alone(federation, name):
    files = [federation / "superlink" / n for n in ("ca.crt", "server.crt", "server.key")]
    handshake(*files, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*files, "other.example")


def test_each_thing_that_is_wrong_is_said_with_its_fix(federation, tmp_path):
    path, authority = (federation / "superlink" / n for n in ("server.crt", "ca.crt"))
    assert certificate_problems(path, authority=authority, names=["localhost"]) == []
    (expired,) = certificate_problems(path, now=NOW + timedelta(days=400))
    assert "expired on" in expired and "renew" in expired
    (soon,) = certificate_problems(path, now=NOW + timedelta(days=380))
    assert "expires on" in soon
    (early,) = certificate_problems(path, now=NOW - timedelta(hours=3))
    assert "clock" in early
    (other,) = certificate_problems(path, names=["elsewhere.org"])
    assert "elsewhere.org" in other
    stranger = tmp_path / "stranger.crt"
    stranger.write_bytes(make_authority("x").certificate)
    (unsigned,) = certificate_problems(path, authority=stranger)
    assert "not signed" in unsigned
    assert "no PEM" in certificate_problems(federation / "superlink" / "server.key")[0]
    assert "No such file" in certificate_problems(tmp_path / "none.crt")[0]


def test_a_renewed_certificate_is_of_the_same_authority_and_another_key(federation):
    superlink = federation / "superlink"
    before = (superlink / "server.key").read_bytes()
    renew(federation, ["new.example"])
    assert (superlink / "server.key").read_bytes() != before
    handshake(*(superlink / n for n in ("ca.crt", "server.crt", "server.key")), "new.example")


def test_an_authority_signs_no_other_authority():
    made = make_authority("wards")
    assert b"BEGIN CERTIFICATE" in issue_server(made, ["a.example", "10.0.0.7"]).certificate
