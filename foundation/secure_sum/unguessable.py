"""Bytes that travel in a form that no one can guess, so that their hash tells nothing of them.

Flower 1.41 files what a message holds under the SHA-256 of its content, asks a sender for what it
has not got yet, and gives any node what it names. So two nodes' equal sums (of no users, say) are
sent once, which shows in what travels, and a node that guesses what another's sum or cohort may
be has it confirmed. Each content is therefore turned by a fresh key that goes with
it: this hides nothing from those it is for, and is no encryption from who has the message.
"""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

KEY_BYTES = 32


def turned(content: bytes) -> bytes:
    """A fresh key, and the content under its stream: never the same bytes twice."""
    key = os.urandom(KEY_BYTES)
    return key + _under(key, content)


def turned_back(sent: bytes) -> bytes:
    """What `turned` was given.

    Raises:
        ValueError: it is too short.
    """
    if len(sent) < KEY_BYTES:
        raise ValueError("there is no key before the content")
    return _under(sent[:KEY_BYTES], sent[KEY_BYTES:])


def _under(key: bytes, content: bytes) -> bytes:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(content)
