"""The arguments of jobs and the results of tasks as JSON, with what JSON has no word for as tags."""

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
    """The arguments of a job. What this service cannot read, such as a payload of a later version, is given
    to who claims the job as it is stored, with the reason; who only looks is told the reason."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    payload_base64: str | None = None
    payload_error: str | None = None


def call_of(payload: bytes) -> CallView:
    """The arguments in a payload."""
    try:
        args, kwargs = decode_call(payload)
        return CallView(args=tag_items(args), kwargs=tag_named(kwargs))
    except (
        PayloadError,
        TypeMismatch,
    ) as exc:  # the latter is nested so deeply that no writer of ours has made it
        return CallView(payload_base64=b64encode(payload).decode(), payload_error=str(exc))


def redacted_call(payload: bytes) -> CallView:
    """The same for who only looks: with a mask in place of what stands under names that look secret, and
    nothing of what cannot be read, since nobody knows what is secret in it."""
    call = call_of(payload)
    return replace(call, args=mask(call.args), kwargs=mask(call.kwargs), payload_base64=None)


def check_not_masked(args: Any, kwargs: Any) -> None:
    """Raise PayloadError for arguments that come back as they were shown: their secrets would be lost."""
    if contains_mask([args, kwargs]):
        raise PayloadError("*** stands for a secret that was not told: give its value again", field="args")


def value_of(result: bytes | None) -> Any:
    """What a task has returned; raises PayloadError."""
    try:
        return None if result is None else tag(decode_result(result))
    except TypeMismatch as exc:
        raise unstorable_error(exc, "result") from None
