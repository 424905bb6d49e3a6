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


def issue_server(authority: Issued, names: Sequence[str]) -> Issued:
    """A server's certificate for ``names`` (host names and addresses), valid for 397 days."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not on an elliptic curve: make it anew")
    key = ec.generate_private_key(ec.SECP256R1())
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
        found = read_certificate(path)
        issuer = None if authority is None else read_certificate(authority)
    except CertificateError as error:
        return [str(error)]
    problems = _dates(path, found, now)
    if issuer is not None:
        problems += _signature(path, found, issuer)
    if lacking := [name for name in names if name not in _names_of(found)]:
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
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}; put the certificate there") from None
    except ValueError:
        raise CertificateError(f"{path} holds no PEM certificate: put one there") from None


def _dates(path: Path, found: x509.Certificate, now: datetime) -> list[str]:
    ends, begins = found.not_valid_after_utc, found.not_valid_before_utc
    renew = "renew it (`fedlens deploy renew FEDERATION`) and start the SuperLink again"
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


def _signature(path: Path, found: x509.Certificate, issuer: x509.Certificate) -> list[str]:
    try:
        found.verify_directly_issued_by(issuer)
    except Exception:  # InvalidSignature, or what a key of another kind raises
        return [
            f"{path} was not signed by the authority beside it (ca.crt): take both from one "
            "federation"
        ]
    return []


def _names_of(found: x509.Certificate) -> set[str]:
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


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
