"""Codec of arguments and results: tagged JSON after a header line with a checksum.

    fb1 5b0a3c1e
    {"v":1,"args":[7],"kwargs":{"to":"ann"}}

The header has the number of the format, a CRC32 and optional fields; docs/reference/payloads.md describes it
for other languages. Broken bytes raise CorruptPayload; intact bytes of a later version raise NewerPayload.
Neither is ever decoded in part. There is no pickle: decoding a payload runs no code of its writer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.domain.json_values import MAX_DEPTH, is_deeper
from forebay.errors import (
    BlobGone,
    ConfigError,
    CorruptPayload,
    NewerPayload,
    PayloadError,
    UnknownEncryptionKey,
)
from forebay.payload.masking import mask
from forebay.payload.typed_json import (
    TypeMismatch,
    UnknownTypeTag,
    key_step,
    tag,
    tag_items,
    tag_named,
    untag,
)

MAX_ARGS: Final = 100
MAX_KWARGS: Final = 50
MIN_LIMIT: Final = 1_024
VERSION: Final = 1
# Nesting of the JSON around one argument, of a dict stored as pairs (three levels), and of a tagged value.
MAX_LEVELS: Final = 2 + 3 * MAX_DEPTH + 1

# The checksum covers all bytes after its own eight digits, so that it protects the fields as well. Without
# fields these are a line end and the JSON, and it can start from the checksum of the line end.
_AFTER_DIGITS: Final = 12
_BARE_HEADER: Final = 13
_LINE_END: Final = crc32(b"\n")
_HEADER: Final = re.compile(rb"fb([1-9][0-9]{0,8}) ([0-9a-f]{8})((?: [a-z]+=[!-~]+)*)\n")
_UNREADABLE_MARK: Final = b"fb0 "
_BLOB_GONE_MARK: Final = b"fb0 gone "
_TILDE: Final = ord("~")
_BACKSLASH: Final = ord("\\")
_ANY_VERSION: Final = re.compile(rb"fb([1-9][0-9]{0,8})[ \n]")


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    args: list[Any]
    kwargs: dict[str, Any]


class _Result(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    result: Any


class _VersionOnly(msgspec.Struct):
    v: int


_Stored = TypeVar("_Stored", _Call, _Result)
_ENCODE: Final = msgspec.json.Encoder().encode
_ENCODE_SORTED: Final = msgspec.json.Encoder(order="sorted").encode
_CALLS: Final = msgspec.json.Decoder(_Call)
_RESULTS: Final = msgspec.json.Decoder(_Result)
_VERSIONS: Final = msgspec.json.Decoder(_VersionOnly)


def check_limit(limit: int) -> None:
    """Raise ConfigError unless `limit` can be the limit of payloads and results."""
    if type(limit) is not int or not MIN_LIMIT <= limit <= MAX_PAYLOAD:
        raise ConfigError(
            f"the payload limit must be from {MIN_LIMIT:,} to {MAX_PAYLOAD:,} bytes, not {limit!r}"
        )


# ------------------------------------------------------------------ calls and results


def encode_call(args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int = MAX_PAYLOAD) -> bytes:
    """Encode the payload of a job; raise PayloadError with the path of an unstorable value as its `field`.

    `limit` includes the header.
    """
    call = _tag_call(args, kwargs)
    data = _add_header(_ENCODE(call))
    if len(data) > limit:
        raise _too_large_error(call, len(data), limit)
    return data


def _tag_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call:
    """Return the arguments of a job with tags; raise PayloadError."""
    if len(args) > MAX_ARGS or len(kwargs) > MAX_KWARGS:
        raise _too_many_error(args, kwargs)
    root = "args"
    try:
        stored_args = tag_items(args)
        root = "kwargs"
        return _Call(VERSION, stored_args, tag_named(kwargs) if kwargs else {})
    except TypeMismatch as exc:
        raise unstorable_error(exc, root) from None


def encode_tagged_call(args: list[Any], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> bytes:
    """Encode the payload of a job from JSON with tags; raise PayloadError for a wrong tag.

    The size is checked first: decoding tags takes a hundred times as long as encoding the JSON again.
    """
    call = _Call(VERSION, args, kwargs)
    try:
        body = _ENCODE(call)
        if len(body) + _BARE_HEADER > limit:
            raise _too_large_error(call, len(body) + _BARE_HEADER, limit)
        if _may_hold_tags(body):
            # One by one: a keyword may be called "~".
            args, kwargs = untag(args), {name: untag(value) for name, value in kwargs.items()}
        elif _tag_call(args, kwargs) == call:  # nearly always; then the JSON is that of the payload
            return _add_header(body)
    except TypeMismatch as exc:
        raise _tag_error(exc, "args") from exc
    except RecursionError as exc:
        raise PayloadError("the arguments are nested too deeply", field="args") from exc
    return encode_call(args, kwargs, limit=limit)


def decode_call(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode the arguments of a job; raise CorruptPayload or NewerPayload."""
    body = _strip_header(data)
    call = _parse(_CALLS, body)
    if _may_hold_tags(body):
        # The values only: a keyword may be called "~".
        values = _untag([call.args, list(call.kwargs.values())])
        return tuple(values[0]), dict(zip(call.kwargs, values[1], strict=True))
    return tuple(call.args), call.kwargs


def mask_call(data: bytes) -> bytes:
    """Return a payload with a mask in place of each value whose name looks secret. An encrypted or offloaded
    payload stays as it is. For other unreadable bytes only the reason is returned."""
    try:
        call = _parse(_CALLS, _strip_header(data))
    except PayloadError as exc:
        return _mask_unreadable(data, exc)
    return _add_header(_ENCODE(_Call(call.v, mask(call.args), mask(call.kwargs))))


def mask_result(data: bytes) -> bytes:
    """Mask the result of a job or a step as `mask_call` masks a payload."""
    try:
        result = _parse(_RESULTS, _strip_header(data))
    except PayloadError as exc:
        return _mask_unreadable(data, exc)
    return _add_header(_ENCODE(_Result(result.v, mask(result.result))))


def _mask_unreadable(data: bytes, error: PayloadError) -> bytes:
    """Return encrypted or offloaded bytes unchanged, and only the reason for other unreadable ones."""
    fields, _ = parse_frame(data) or ({}, b"")
    return data if fields.keys() & {"key", "blob"} else unreadable_marker(error)


def encode_result(value: Any, *, limit: int = MAX_PAYLOAD) -> bytes:
    """Encode the result of a task; raise PayloadError like `encode_call`, with paths from `result`."""
    if value is None:
        return _NONE_RESULT
    try:
        result = _Result(VERSION, tag(value))
    except TypeMismatch as exc:
        raise unstorable_error(exc, "result") from None
    data = _add_header(_ENCODE(result))
    _check_result_size(len(data), limit)
    return data


def encode_tagged_result(value: Any, *, limit: int = MAX_PAYLOAD) -> bytes:
    """Encode the result of a task from JSON with tags; raise PayloadError. The size is checked first, as in
    `encode_tagged_call`."""
    if value is None:
        return _NONE_RESULT
    try:
        body = _ENCODE(_Result(VERSION, value))
        _check_result_size(len(body) + _BARE_HEADER, limit)
        return encode_result(untag(value) if _may_hold_tags(body) else value, limit=limit)
    except TypeMismatch as exc:
        raise _tag_error(exc, "result") from exc
    except RecursionError as exc:
        raise PayloadError("the result is nested too deeply", field="result") from exc


def is_same_call(left: bytes, right: bytes) -> bool:
    """Return whether two payloads have the same arguments, independent of the order of names and keys.

    JSON is compared and not values: comparing a decimal with an int takes the square of its length, 20 s for
    1 MiB. Values whose names look secret are not compared: the answer would confirm a guess.
    """
    if left == right:
        return True
    try:
        first, second = (_parse(_CALLS, _strip_header(data)) for data in (left, right))
        return bool(_comparison_key(first) == _comparison_key(second))
    except (PayloadError, RecursionError):  # encrypted or offloaded by the program that stored it
        return False


def _comparison_key(call: _Call) -> Any:
    return _normalize(mask(call.args)), _normalize_values(mask(call.kwargs))


def _normalize(value: Any) -> Any:
    """Return stored JSON with the pairs of each map sorted by their JSON."""
    if type(value) is list:
        return [_normalize(item) for item in value]
    if type(value) is not dict:
        return value
    normalized = _normalize_values(value)
    if value.get("~") == "map" and type(normalized.get("v")) is list:
        normalized["v"].sort(key=_ENCODE_SORTED)
    return normalized


def _normalize_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _normalize(value) for name, value in values.items()}


def decode_result(data: bytes) -> Any:
    """Decode the result of a task; raise CorruptPayload or NewerPayload."""
    body = _strip_header(data)
    result = _parse(_RESULTS, body).result
    return _untag(result) if _may_hold_tags(body) else result


def _check_result_size(size: int, limit: int) -> None:
    if size > limit:
        raise PayloadError(
            f"the result has {size:,} bytes, the limit is {limit:,}; "
            "keep the data elsewhere and return a reference",
            field="result",
        )


def _too_many_error(args: Sequence[Any], kwargs: Mapping[str, Any]) -> PayloadError:
    if len(args) > MAX_ARGS:
        return PayloadError(
            f"a job takes at most {MAX_ARGS} positional arguments, not {len(args)}; pass a list", field="args"
        )
    return PayloadError(
        f"a job takes at most {MAX_KWARGS} keyword arguments, not {len(kwargs)}; pass a dict", field="kwargs"
    )


def _tag_error(exc: TypeMismatch, field: str) -> PayloadError:
    return PayloadError(f"a tagged value cannot be read: {exc.reason}", field=field)


def unstorable_error(exc: TypeMismatch, root: str) -> PayloadError:
    path = exc.path(root)
    return PayloadError(f"{path}: {exc.reason}", field=path)


def _too_large_error(call: _Call, size: int, limit: int) -> PayloadError:
    sizes = {f"args[{index}]": len(_ENCODE(value)) for index, value in enumerate(call.args)}
    sizes |= {f"kwargs{key_step(name)}": len(_ENCODE(value)) for name, value in call.kwargs.items()}
    largest = max(sizes, key=sizes.__getitem__, default="payload")
    return PayloadError(
        f"the payload has {size:,} bytes, the limit is {limit:,}, and {largest} is the largest part; "
        "keep the data elsewhere and pass a reference",
        field=largest,
    )


# ------------------------------------------------------------------ header and JSON


def _add_header(body: bytes) -> bytes:
    return b"fb1 %08x\n%b" % (crc32(body, _LINE_END), body)


_NONE_RESULT: Final = _add_header(_ENCODE(_Result(VERSION, None)))  # the result of most tasks


def _strip_header(data: bytes) -> bytes:
    """Return the JSON after a header with a correct checksum."""
    body = data[_BARE_HEADER:]
    if data[:_BARE_HEADER] == b"fb1 %08x\n" % crc32(body, _LINE_END):
        return body
    raise _header_error(data)


def frame(body: bytes, **fields: str) -> bytes:
    """Put a header with these fields before bytes that are not JSON."""
    named = "".join(f" {name}={value}" for name, value in fields.items())
    rest = named.encode() + b"\n" + body
    return b"fb1 %08x%b" % (crc32(rest), rest)


def parse_frame(data: bytes) -> tuple[dict[str, str], bytes] | None:
    """Return the fields of a correct header, and the bytes after it; None for everything else."""
    header = _HEADER.match(data)
    if not header or header[1] != b"1" or header[2] != b"%08x" % crc32(data[_AFTER_DIGITS:]):
        return None
    fields = (part.partition("=") for part in header[3].decode().split())
    return {name: value for name, _, value in fields}, data[header.end() :]


def unreadable_marker(error: PayloadError) -> bytes:
    """Return a marker in place of stored bytes that could not be decoded. Never stored."""
    return (_BLOB_GONE_MARK if isinstance(error, BlobGone) else _UNREADABLE_MARK) + str(error).encode()


def check_new_payload(data: bytes, job_id: str | None) -> None:
    """Raise PayloadError for bytes that cannot be the payload of this new job: a copied marker of unreadable
    bytes, or a copied reference to the blob of another job, which is deleted with that job."""
    if data.startswith(_UNREADABLE_MARK):
        raise _header_error(data)
    if data[_AFTER_DIGITS:_BARE_HEADER] != b" ":
        return
    text = (parse_frame(data) or ({}, b""))[0].get("blob")
    if text is None:
        return
    from forebay.payload.blob_stores import blob_name  # noqa: PLC0415 - few programs have a blob store

    name = blob_name(text)
    if name is None or (name.job, name.kind) != (job_id, "payload"):
        raise PayloadError(
            "the payload is a reference to the blob of another job; give the arguments themselves",
            field="payload",
        )


def check_queue(data: bytes, queue: str, *, must_name: bool = False) -> None:
    """Raise PayloadError for bytes that are encrypted for another queue. With `must_name` also for those
    without a queue, which earlier releases have written."""
    if data[_AFTER_DIGITS:_BARE_HEADER] != b" ":
        return
    fields = (parse_frame(data) or ({}, b""))[0]
    bound = fields.get("queue")
    if "key" in fields and bound != queue and (bound is not None or must_name):
        named = f"queue {bound}" if bound else "no queue by name"
        raise PayloadError(
            f"the payload is encrypted for {named}, not for queue {queue}; give the arguments themselves",
            field="payload",
        )


def _header_error(data: bytes) -> PayloadError:
    later = _ANY_VERSION.match(data)
    if later and int(later[1]) > 1:
        return NewerPayload(
            f"the payload has format {int(later[1])}, this program reads 1; upgrade it", field="payload"
        )
    if data.startswith(_BLOB_GONE_MARK):
        return BlobGone(
            _reason(data[len(_BLOB_GONE_MARK) :]) or "the payload's blob is gone", field="payload"
        )
    if data.startswith(_UNREADABLE_MARK):
        reason = _reason(data[len(_UNREADABLE_MARK) :]) or "no reason is given"
        return CorruptPayload(f"the payload is broken: {reason}", field="payload")
    header = _HEADER.match(data)
    if not header:
        return CorruptPayload("the payload does not begin with the header of a payload", field="payload")
    if header[2] != b"%08x" % crc32(data[_AFTER_DIGITS:]):
        return CorruptPayload("the payload's checksum does not fit its bytes", field="payload")
    return _unknown_fields_error(header[3].decode().strip())


def _reason(data: bytes) -> str:
    return data.decode(errors="replace")[:200].strip()


def _unknown_fields_error(text: str) -> PayloadError:
    """Return the error for header fields that this program cannot act on."""
    fields = dict(field.split("=", 1) for field in text.split())
    if "key" in fields:
        key = fields["key"][:80]
        return UnknownEncryptionKey(
            f"the payload is encrypted with the key {key}, which this program does not have",
            key=key,
            field="payload",
        )
    if "blob" in fields:
        return NewerPayload(
            "the payload is kept in a blob store, and cannot be read from there now",
            field="payload",
            requires="blobs",
        )
    return NewerPayload(
        f"the payload's header has fields that this program does not know: {text:.80}", field="payload"
    )


def _parse(decoder: msgspec.json.Decoder[_Stored], body: bytes) -> _Stored:
    try:
        stored = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise _parse_error(body, exc) from exc
    if stored.v != VERSION:
        raise _version_error(stored.v)
    if is_deeper(body, MAX_LEVELS):
        # Every other reader refuses it too; `encode_call` never writes such depth.
        raise CorruptPayload(f"the payload's JSON is nested deeper than {MAX_LEVELS} levels", field="payload")
    return stored


def _parse_error(body: bytes, error: Exception) -> PayloadError:
    """Return the error for unreadable JSON. A later version may have other fields, so the version is read
    first."""
    try:
        version = _VERSIONS.decode(body).v
    except (msgspec.MsgspecError, ValueError, RecursionError):
        version = VERSION
    if version != VERSION:
        return _version_error(version)
    return CorruptPayload(f"the payload's JSON cannot be read: {error!s:.120}", field="payload")


def _version_error(version: int) -> PayloadError:
    if version > VERSION:
        return NewerPayload(
            f"the payload has version {version}, this program reads {VERSION}; upgrade it", field="payload"
        )
    return CorruptPayload(f"there is no payload version {version}", field="payload")


def _may_hold_tags(body: bytes) -> bool:
    # The second condition is "~" with an escape that a writer need not use. Nearly no payload has one of
    # these two characters, and searching them first takes 0.04 us instead of 0.5.
    return (_TILDE in body and b'"~"' in body) or (_BACKSLASH in body and b"\\u007" in body)


def _untag(value: Any) -> Any:
    try:
        return untag(value)
    except UnknownTypeTag as exc:
        raise NewerPayload(f"{exc.reason}; upgrade this program", field="payload") from None
    except TypeMismatch as exc:
        raise CorruptPayload(f"a stored value is malformed: {exc.reason}", field="payload") from exc
    except RecursionError as exc:
        raise CorruptPayload("the payload is nested too deeply to be read", field="payload") from exc
