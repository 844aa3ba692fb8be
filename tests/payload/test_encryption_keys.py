"""Keys: an encrypted payload opens with its key, in its place, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from typing import Any

import pytest

from forebay.domain.job_validation import MAX_ENCRYPTION_OVERHEAD, MAX_QUEUE_NAME
from forebay.domain.ulid import encode_ulid
from forebay.errors import ConfigError, CorruptPayload, NewerPayload, UnknownEncryptionKey
from forebay.payload.codec import decode_call, encode_call, frame, parse_frame, unreadable_marker
from forebay.payload.encryption_keys import EncryptionKeys

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
PAYLOAD = encode_call((7,), {"to": "ann"})


def opened(keys: EncryptionKeys, data: bytes, about: str = "payload t") -> bytes | None:
    parts = parse_frame(data)
    assert parts is not None
    return keys.decrypt(*parts, about)


@pytest.mark.shows("R-SER-21", "R-SEC-06")
def test_what_was_encrypted_comes_back() -> None:
    keys = EncryptionKeys({"a": OLD})

    data = keys.encrypt(PAYLOAD, "payload t")

    assert b"ann" not in data
    assert opened(keys, data) == PAYLOAD
    assert keys.encrypt(PAYLOAD, "payload t") != data


def test_no_seal_takes_more_than_is_allowed_for_it() -> None:
    encrypted = EncryptionKeys({"a" * 40: OLD}).encrypt(
        PAYLOAD, "payload t", queue="q" * MAX_QUEUE_NAME, store=encode_ulid(2**128 - 1)
    )

    assert len(encrypted) <= len(PAYLOAD) + MAX_ENCRYPTION_OVERHEAD


@pytest.mark.shows("R-SER-21")
def test_the_first_key_seals_and_all_open() -> None:
    before = EncryptionKeys({"2025": OLD}).encrypt(b"old", "x")
    keys = EncryptionKeys({"2026": NEW, "2025": OLD})

    data = keys.encrypt(b"new", "x")

    assert data.split(b"\n")[0].split()[2].startswith(b"key=2026.")
    assert (opened(keys, data, "x"), opened(keys, before, "x")) == (b"new", b"old")
    assert opened(EncryptionKeys({"2025": OLD}), data, "x") is None


@pytest.mark.shows("R-SER-21")
def test_another_key_under_the_same_id_is_another_key() -> None:
    data = EncryptionKeys({"a": OLD}).encrypt(b"x", "x")

    assert opened(EncryptionKeys({"a": NEW}), data, "x") is None


@pytest.mark.shows("R-SER-19", "R-EDGE-71")
def test_what_was_changed_or_moved_does_not_open() -> None:
    keys = EncryptionKeys({"a": OLD})
    fields, body = parse_frame(keys.encrypt(PAYLOAD, "payload t")) or ({}, b"")
    changed = frame(body[:-1] + bytes([body[-1] ^ 1]), **fields)

    for data, about in (
        (changed, "payload t"),
        (frame(b"", **fields), "payload t"),
        (frame(body, **fields), "u"),
        (frame(body, **fields, queue="b"), "payload t"),
        (frame(body, key=fields["key"]), "payload t"),
    ):
        with pytest.raises(CorruptPayload, match="changed since or brought from elsewhere"):
            opened(keys, data, about)


@pytest.mark.shows("R-SER-21")
def test_who_has_no_key_is_told_which_one_is_missing() -> None:
    data = EncryptionKeys({"2026-11": OLD}).encrypt(PAYLOAD, "payload t")

    with pytest.raises(
        UnknownEncryptionKey, match=r"encrypted with the key 2026-11\.[0-9a-f]{8}, which"
    ) as caught:
        decode_call(data)

    assert caught.value.key.startswith("2026-11.")
    assert caught.value.requires == f"key {caught.value.key}"
    assert caught.value.field == "payload"


def test_a_reference_to_a_blob_says_what_it_needs() -> None:
    with pytest.raises(NewerPayload, match="kept in a blob store") as caught:
        decode_call(frame(b"", blob="x"))

    assert caught.value.requires == "blobs"


def test_what_was_found_broken_before_says_why() -> None:
    with pytest.raises(CorruptPayload, match="its blob is gone"):
        decode_call(unreadable_marker(CorruptPayload("its blob is gone")))


def test_keys_are_given_as_bytes_as_base64_and_as_one_text() -> None:
    text = b64encode(OLD).decode()

    names = EncryptionKeys({"a": OLD}).names

    assert EncryptionKeys({"a": text}).names == names
    assert EncryptionKeys(f" a={text} ,").names == names
    assert EncryptionKeys(f"b={b64encode(NEW).decode()},a={text}").names[1:] == names


@pytest.mark.shows("R-SEC-02")
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no encryption key"),
        ("", "no encryption key"),
        ("hunter2", "id=base64"),
        ("a=AAAA,a=AAAA", "each id once"),
        ({"a b": OLD}, "letters, digits"),
        ({"": OLD}, "letters, digits"),
        ({"a": b"hunter2"}, "the encryption key a must be 32 bytes"),
        ({"a": "hunter2"}, "the encryption key a must be 32 bytes"),
        ({"a": 7.5}, "the encryption key a must be 32 bytes"),
    ],
)
def test_other_keys_are_refused_and_never_quoted(keys: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        EncryptionKeys(keys)

    assert "hunter2" not in str(caught.value)


@pytest.mark.shows("R-EDGE-87")
def test_keys_do_not_show_themselves() -> None:
    keys = EncryptionKeys({"a": OLD})

    assert repr(keys).startswith("<Keys a.")
    assert "00010203" not in repr(keys) + repr(vars(keys))


def test_a_program_without_keys_does_not_load_the_library() -> None:
    script = "import sys, forebay; forebay.Forebay('memory://'); print('cryptography' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
