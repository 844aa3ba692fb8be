"""Arguments and results as JSON, with type tags for other Python types."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from msgspec import field
from msgspec.structs import replace

from forebay.errors import PayloadError
from forebay.payload.codec import decode_call, decode_result, unstorable_error
from forebay.payload.masking import contains_mask, mask
from forebay.payload.typed_json import TypeMismatch, tag, tag_items, tag_named
from forebay.service.schema.base import ResponseModel


class CallView(ResponseModel, frozen=True, kw_only=True):
    """Arguments of a job. A payload that this service cannot decode, such as one of a later version, is
    returned as stored to its claimer, with the reason. Other callers get the reason only."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    payload_base64: str | None = None
    payload_error: str | None = None


def call_of(payload: bytes) -> CallView:
    """Return the arguments in a payload."""
    try:
        args, kwargs = decode_call(payload)
        return CallView(args=tag_items(args), kwargs=tag_named(kwargs))
    except (
        PayloadError,
        TypeMismatch,
    ) as exc:  # TypeMismatch: nested deeper than any writer of Forebay nests
        return CallView(payload_base64=b64encode(payload).decode(), payload_error=str(exc))


def redacted_call(payload: bytes) -> CallView:
    """Return the arguments with masks in place of what looks secret, and nothing of an undecodable payload,
    which may contain secrets anywhere."""
    call = call_of(payload)
    return replace(call, args=mask(call.args), kwargs=mask(call.kwargs), payload_base64=None)


def check_not_masked(args: Any, kwargs: Any) -> None:
    """Raise PayloadError for masked arguments that come back: their secrets would be lost."""
    if contains_mask([args, kwargs]):
        raise PayloadError("*** stands for a masked secret: give its value again", field="args")


def value_of(result: bytes | None) -> Any:
    """Return the result of a task as JSON; raises PayloadError."""
    try:
        return None if result is None else tag(decode_result(result))
    except TypeMismatch as exc:
        raise unstorable_error(exc, "result") from None
