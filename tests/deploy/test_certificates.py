"""Certificates that TLS accepts, and what is said of those that it would not."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedlens.cli import main
from fedlens.deploy import certificates
from fedlens.deploy.certificates import (
    Issued,
    certificate_problems,
    host_here,
    issue_server,
    make_authority,
    renew_authority,
)
from fedlens.deploy.checking import check_folder, require_startable
from fedlens.deploy.initialise import FederationPlan, initialise, renew
from fedlens.deploy.layout import DeployError

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
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
    assert "does not lead to the authority" in unsigned
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


def organisations(folder, names, *, between=True):
    """A root, an intermediate and a server's certificate with its chain, as organisations have."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    subjects = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in ("r", "i", "s")]
    made = []
    for number, (subject, key) in enumerate(zip(subjects, keys, strict=True)):
        above = max(0, number - 1)
        builder = x509.CertificateBuilder(subjects[above], subject, key.public_key(), number + 1)
        builder = builder.not_valid_before(NOW - timedelta(1)).not_valid_after(NOW + timedelta(99))
        builder = builder.add_extension(x509.BasicConstraints(number < 2, None), critical=True)
        if number == 2:
            found = [x509.DNSName(name) for name in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        made.append(builder.sign(keys[above], hashes.SHA256()).public_bytes(PEM))
    root, intermediate, server = made
    paths = [folder / name for name in ("root.crt", "chain.crt", "own.key")]
    paths[0].write_bytes(root)
    paths[1].write_bytes(server + intermediate if between else server)
    paths[2].write_bytes(keys[2].private_bytes(PEM, PKCS8, serialization.NoEncryption()))
    return paths


def test_an_organisations_chain_and_wildcard_are_judged_as_tls_does(tmp_path):
    root, chain, key = organisations(tmp_path, ["*.hospital.example", "other.example"])
    for name in ("node.hospital.example", "other.example"):
        handshake(root, chain, key, name)
        assert certificate_problems(chain, authority=root, names=[name]) == []
    for name in ("hospital.example", "a.b.hospital.example"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(root, chain, key, name)
        (problem,) = certificate_problems(chain, authority=root, names=[name])
        assert f"is not for {name}" in problem
    root, alone, key = organisations(tmp_path, ["other.example"], between=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(root, alone, key, "other.example")
    (problem,) = certificate_problems(alone, authority=root, names=["other.example"])
    assert "does not lead to the authority" in problem and "between them" in problem


def test_an_organisations_certificate_is_reached_by_a_name_that_it_has(tmp_path, federation):
    _, chain, _ = organisations(tmp_path, ["*.hospital.example"])
    names = ("node.hospital.example",)
    assert host_here(chain, "0.0.0.0", names) == "node.hospital.example"
    own = federation / "superlink" / "server.crt"
    assert host_here(own, "0.0.0.0", ("localhost",)) == "127.0.0.1"


def test_an_encrypted_or_foreign_key_is_refused_by_init_and_check(federation, tmp_path, capsys):
    given = organisations(tmp_path, ["localhost"])
    plain = serialization.load_pem_private_key(given[2].read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    for form in (PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        given[2].write_bytes(plain.private_bytes(PEM, form, locked))
        with pytest.raises(DeployError, match=r"is encrypted, and nobody is there.*openssl pkey"):
            initialise(tmp_path / "new", FederationPlan(("north",), given=tuple(given)))
    superlink = federation / "superlink"
    (superlink / "server.key").write_bytes(given[2].read_bytes())
    assert "is encrypted" in " ".join(check_folder(superlink))
    (superlink / "server.key").write_bytes(make_authority("x").key)
    assert "is not the private key of" in " ".join(check_folder(superlink))


def test_renewing_under_an_expired_authority_works(federation, monkeypatch, capsys):
    """And says where its new certificate has to go; a key that nodes trust is still the same."""
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "AUTHORITY_DAYS", -1 / 48)
        old = renew_authority(Issued(*(read(federation / "authority", n) for n in ("crt", "key"))))
    north = federation / "nodes" / "north"
    for folder in (federation / "authority", federation / "superlink", north):
        (folder / "ca.crt").write_bytes(old.certificate)
    with pytest.raises(DeployError, match=r"ca\.crt expired on"):
        require_startable(north)
    assert main(["deploy", "renew", str(federation)]) == 0
    said = capsys.readouterr().out
    assert f"{north}/ca.crt   on the machine of north" in said
    superlink = federation / "superlink"
    files = [superlink / "server.crt", superlink / "server.key"]
    for folder in (superlink, north, federation / "operators" / "operator"):
        handshake(folder / "ca.crt", *files, "localhost")
    assert certificate_problems(files[0], authority=superlink / "ca.crt", names=["localhost"]) == []
    before = (superlink / "ca.crt").read_bytes()
    assert main(["deploy", "renew", str(federation)]) == 0  # the authority is valid for long
    assert (superlink / "ca.crt").read_bytes() == before


def read(folder, kind):
    return (folder / f"ca.{kind}").read_bytes()
