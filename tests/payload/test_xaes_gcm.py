"""XAES-256-GCM by the vectors of its specification (C2SP), one for each branch of the key derivation."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag

from forebay.payload.xaes_gcm import NONCE, Xaes

NONCE_OF_VECTORS = b"ABCDEFGHIJKLMNOPQRSTUVWX"


@pytest.mark.parametrize(
    ("key", "associated", "ciphertext"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (
            b"\x03" * 32,
            b"c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
        ),
    ],
)
def test_vectors_of_the_specification(key: bytes, associated: bytes, ciphertext: str) -> None:
    cipher = Xaes(key)

    encrypted = cipher.encrypt(b"XAES-256-GCM", associated, NONCE_OF_VECTORS)

    assert encrypted == NONCE_OF_VECTORS + bytes.fromhex(ciphertext)
    assert cipher.decrypt(encrypted, associated) == b"XAES-256-GCM"
    with pytest.raises(InvalidTag):
        cipher.decrypt(encrypted, associated + b"x")


def test_each_message_has_a_nonce_of_its_own() -> None:
    cipher = Xaes(bytes(32))

    nonces = {cipher.encrypt(b"x", b"")[:NONCE] for _ in range(1_000)}

    assert len(nonces) == 1_000


def test_what_is_too_short_for_a_nonce_is_refused() -> None:
    with pytest.raises(ValueError, match="24 bytes, not 3"):
        Xaes(bytes(32)).decrypt(b"abc", b"")
