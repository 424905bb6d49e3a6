"""Long-term keys as ssh-keygen and cryptography make them."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from fedlens.foundation.secure_sum import Identity, KeyRoster, SecureSumError
from fedlens.foundation.secure_sum.identities import signed_by

KEYS = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
}
FORMS = {"openssh": serialization.PrivateFormat.OpenSSH, "pem": serialization.PrivateFormat.PKCS8}


def saved(key, path, form="openssh"):
    none = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, FORMS[form], none))
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_a_supernode_sign_and_are_known_by_their_public_half(tmp_path, kind, form):
    identity = Identity.load(saved(KEYS[kind](), tmp_path / "key", form))
    again = Identity.from_secret(identity.secret)
    assert again.public == identity.public
    signature = again.sign(b"statement")
    assert signed_by(identity.public, signature, b"statement")
    assert not signed_by(identity.public, signature, b"another")
    assert not signed_by(Identity.new().public, signature, b"statement")
    assert KeyRoster.parse([f"{identity.public} node-1@hospital"]).knows(identity.public)


def test_a_key_that_cannot_be_used_is_refused_by_its_setting(tmp_path):
    with pytest.raises(SecureSumError, match="identity="):
        Identity.load(tmp_path / "none")
    (tmp_path / "text").write_text("no key")
    with pytest.raises(SecureSumError, match="no private key that can be read"):
        Identity.load(tmp_path / "text")
    strange = rsa.generate_private_key(65537, 2048)
    with pytest.raises(SecureSumError, match="Ed25519 or ECDSA"):
        Identity.load(saved(strange, tmp_path / "rsa"))


def test_a_roster_names_the_line_that_is_no_key(tmp_path):
    known = Identity.new().public
    roster = tmp_path / "roster"
    roster.write_text(f"# our nodes\n\n{known} one\n")
    assert KeyRoster.load(roster).knows(known)
    roster.write_text(f"{known}\nssh-ed25519 AAAA\n")
    with pytest.raises(SecureSumError, match="line 2"):
        KeyRoster.load(roster)
    with pytest.raises(SecureSumError, match="roster="):
        KeyRoster.load(tmp_path / "none")


@pytest.mark.parametrize("public", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ключ", "x" * 5000])
def test_whatever_stands_for_a_public_key_signs_nothing(public):
    assert not signed_by(public, b"\0" * 64, b"statement")


def test_a_key_in_a_form_that_is_not_known_signs_nothing_and_raises_nothing():
    """A hostile node sends its key as it likes; its server must go on."""

    def text(*fields: bytes) -> str:
        blob = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
        return "ecdsa-sha2-nistp256 " + base64.b64encode(blob).decode("ascii")

    kind = b"ecdsa-sha2-nistp256"
    for point in (b"\x02" + bytes(32), b"", b"\x04" + bytes(64), b"\x07" + bytes(64)):
        key = text(kind, b"nistp256", point)
        assert not signed_by(key, b"x" * 70, b"statement")
        with pytest.raises(SecureSumError, match="no public key"):
            KeyRoster.parse([key])
