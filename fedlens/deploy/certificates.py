"""A small certificate authority for one federation, and what is wrong with a certificate.

All keys are on the curve P-256. An organisation with an authority of its own gives its files
instead, and nothing here but the checks is used.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedlens.foundation.errors import FedlensError

AUTHORITY_DAYS, SERVER_DAYS = 5 * 365, 397
SOON = timedelta(days=30)
SKEW = timedelta(hours=1)
"""A new certificate is valid from an hour ago, for machines whose clock is a little behind."""
LONGEST_CHAIN = 8
LOCAL = ("localhost", "127.0.0.1", "::1")
"""Names by which the SuperLink's own processes reach it."""


class CertificateError(FedlensError, ValueError):
    """A certificate or key that cannot be used; the message names the file and the fix."""


class Issued(NamedTuple):
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str) -> Issued:
    """A new authority, valid for five years, that signs servers' certificates and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedlens {name}"[:64])])
    usage = {"digital_signature": False, "key_cert_sign": True, "crl_sign": True}
    builder = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Issued(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def renew_authority(made: Issued) -> Issued:
    """An authority valid for five years from now, under its own name and key.

    What it signs is trusted by who has the old certificate too, until that expires.
    """
    old = x509.load_pem_x509_certificate(made.certificate)
    key = _signing_key(made)
    builder = _builder(old.subject, old.subject, key.public_key(), AUTHORITY_DAYS)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return Issued(_pem(builder.sign(key, hashes.SHA256())), made.key)


def outlives_its_servers(certificate: bytes) -> bool:
    """Whether an authority is valid for as long as a certificate that it signs now."""
    ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return ends - datetime.now(UTC) > timedelta(days=SERVER_DAYS)


def _signing_key(authority: Issued) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not on an elliptic curve: make it anew")
    return key


def issue_server(authority: Issued, names: Sequence[str]) -> Issued:
    """A server's certificate for ``names`` (host names and addresses), valid for 397 days."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer, key = _signing_key(authority), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    alternatives = [_general_name(name) for name in dict.fromkeys([*names, *LOCAL])]
    builder = (
        _builder(issuer.subject, subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(own, critical=False)
    )
    return Issued(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


def certificate_problems(
    path: Path,
    *,
    authority: Path | None = None,
    names: Sequence[str] = (),
    now: datetime | None = None,
) -> list[str]:
    """What is wrong with a certificate, one line with its fix each.

    Args:
        path: PEM file.
        authority: PEM file of who is to have signed it.
        names: host names and addresses that it must be for.
        now: the present time, UTC.
    """
    now = now or datetime.now(UTC)
    try:
        found, *others = _read_all(path)
        trusted = [] if authority is None else _read_all(authority)
    except CertificateError as error:
        return [str(error)]
    problems = _dates(path, found, now)
    if authority is not None and not _leads_to(found, others, trusted):
        problems.append(
            f"{path} does not lead to the authority beside it ({authority.name}): take both from "
            "one federation; an organisation's own has the certificates between them behind it"
        )
    if lacking := [name for name in names if not _is_for(found, name)]:
        problems.append(
            f"{path} is not for {', '.join(lacking)}: issue one that names them "
            "(`fedlens deploy renew --name NAME`)"
        )
    return problems


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a PEM file.

    Raises:
        CertificateError: it cannot be read, or holds none.
    """
    return _read_all(path)[0]


def key_problem(key: Path, certificate: Path) -> str | None:
    """Why a private key cannot serve with a certificate; None where it can.

    Raises:
        CertificateError: the certificate cannot be read.
    """
    try:
        found = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except OSError as error:
        return f"{key}: {error.strerror}; put the certificate's private key there"
    except TypeError:
        return (
            f"{key} is encrypted, and nobody is there to give its password when the SuperLink "
            f"starts: decrypt it (openssl pkey -in {key} -out server.key)"
        )
    except ValueError:
        return f"{key} holds no PEM private key: name that of {certificate}"
    if found.public_key() != read_certificate(certificate).public_key():
        return f"{key} is not the private key of {certificate}: name that one"
    return None


def host_here(certificate: Path, host: str, names: Sequence[str]) -> str:
    """By which host the SuperLink's own machine reaches it: one that its certificate is for.

    Args:
        certificate: the SuperLink's.
        host: address that it listens on.
        names: by which others reach it.
    """
    everywhere = host in ("0.0.0.0", "::")  # noqa: S104
    choices = ["127.0.0.1", "localhost", *names] if everywhere else [host, *names]
    try:
        found = read_certificate(certificate)
    except CertificateError:
        return choices[0]
    return next((one for one in choices if _is_for(found, one)), choices[0])


def _read_all(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}; put the certificate there") from None
    except ValueError:
        raise CertificateError(f"{path} holds no PEM certificate: put one there") from None


def _dates(path: Path, found: x509.Certificate, now: datetime) -> list[str]:
    ends, begins = found.not_valid_after_utc, found.not_valid_before_utc
    renew = "renew it (`fedlens deploy renew FEDERATION`) and start the SuperLink again"
    if _may_sign(found):
        renew = "`fedlens deploy renew FEDERATION` renews it: put its new ca.crt into each folder"
    if now >= ends:
        return [f"{path} expired on {ends:%Y-%m-%d}: {renew}"]
    if now < begins:
        return [
            f"{path} is valid only from {begins:%Y-%m-%d %H:%M} UTC, and this machine says it is "
            f"{now:%Y-%m-%d %H:%M}: set its clock (timedatectl set-ntp true)"
        ]
    if ends - now < SOON:
        return [f"{path} expires on {ends:%Y-%m-%d}, in {(ends - now).days} days: {renew}"]
    return []


def _leads_to(
    found: x509.Certificate, others: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]
) -> bool:
    """Whether a chain of those that may sign goes from a certificate to a trusted root."""
    roots = [one for one in trusted if one.subject == one.issuer]
    between = [one for one in (*others, *trusted) if one not in roots]
    for _ in range(LONGEST_CHAIN):
        if any(_signed(found, root) for root in roots):
            return True
        above = next((one for one in between if _signed(found, one)), None)
        if above is None:
            return False
        found = above
    return False


def _signed(found: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        found.verify_directly_issued_by(issuer)
    except Exception:  # InvalidSignature, or what a key of another kind raises
        return False
    return _may_sign(issuer)


def _may_sign(found: x509.Certificate) -> bool:
    try:
        return found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _is_for(found: x509.Certificate, name: str) -> bool:
    """Whether a certificate is for a host name or address; ``*`` stands for the first label."""
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(name) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        pass
    known = {one.lower() for one in names.get_values_for_type(x509.DNSName)}
    first, dot, rest = name.lower().partition(".")
    return name.lower() in known or bool(first and dot and f"*.{rest}" in known)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(
    *, digital_signature: bool, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
