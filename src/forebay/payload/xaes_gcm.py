"""XAES-256-GCM (C2SP): AES-256-GCM with a key of its own for each message.

The first 12 bytes of a random nonce of 24 derive the key by CMAC, the last 12 are the nonce of AES-GCM.
Random nonces of plain AES-GCM (12 bytes) limit one key to 2^32 messages; these limit it to 2^80.
"""

from __future__ import annotations

from os import urandom
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

NONCE: Final = 24
_HALF: Final = NONCE // 2
_BLOCK: Final = 16
# Counter, label and a zero byte before the nonce: the two input blocks of the key derivation.
_PREFIXES: Final = (b"\x00\x01X\x00", b"\x00\x02X\x00")
_POLYNOMIAL: Final = 0x87  # of CMAC, for blocks of 128 bits
_ALL_BITS: Final = (1 << 8 * _BLOCK) - 1


class Xaes:
    """Cipher with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._gcm = AESGCM(key)
        self._cipher = Cipher(AES(key), ECB())  # noqa: S305 - single blocks inside CMAC, as the specification has it
        first = int.from_bytes(self._encrypt_blocks(bytes(_BLOCK)))
        doubled = (first << 1) & _ALL_BITS
        subkey = doubled ^ _POLYNOMIAL if first >> (8 * _BLOCK - 1) else doubled
        self._mask = subkey << 8 * _BLOCK | subkey

    def encrypt(self, data: bytes, associated: bytes, nonce: bytes | None = None) -> bytes:
        """Return a nonce, random by default, followed by the ciphertext with its tag."""
        nonce = urandom(NONCE) if nonce is None else nonce
        return nonce + self._derive(nonce).encrypt(nonce[_HALF:], data, associated)

    def decrypt(self, ciphertext: bytes, associated: bytes) -> bytes:
        """Return the decrypted bytes; raise InvalidTag, or ValueError for a short ciphertext."""
        nonce, body = ciphertext[:NONCE], ciphertext[NONCE:]
        return self._derive(nonce).decrypt(nonce[_HALF:], body, associated)

    def decrypt_gcm(self, ciphertext: bytes, associated: bytes) -> bytes:
        """Decrypt AES-256-GCM with a nonce of 12 bytes, the cipher of payloads without the field `alg`."""
        return self._gcm.decrypt(ciphertext[:_HALF], ciphertext[_HALF:], associated)

    def _derive(self, nonce: bytes) -> AESGCM:
        if len(nonce) != NONCE:
            raise ValueError(f"a nonce has {NONCE} bytes, not {len(nonce)}")
        half = nonce[:_HALF]
        blocks = int.from_bytes(_PREFIXES[0] + half + _PREFIXES[1] + half) ^ self._mask
        return AESGCM(self._encrypt_blocks(blocks.to_bytes(2 * _BLOCK)))

    def _encrypt_blocks(self, blocks: bytes) -> bytes:
        encrypted: bytes = self._cipher.encryptor().update(blocks)
        return encrypted
