"""What a step of a job leaves behind: its name, and its result as it is stored and read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.errors import PayloadError
from forebay.payload.codec import decode_result, encode_result
from forebay.payload.coercion import Coercion


def encode_step(name: str, value: Any) -> bytes:
    try:
        return encode_result(value)
    except PayloadError as exc:
        raise PayloadError(
            f"the result of step {name!r:.60} cannot be stored: {exc}", field="result"
        ) from exc


def decode_step(name: str, fn: Callable[..., Any], data: bytes) -> Any:
    value = decode_result(data)
    try:
        fitting = Coercion(fn)
    except (ValueError, TypeError):  # some built-in functions keep their signature to themselves
        return value
    try:
        return fitting.coerce_result(value)
    except PayloadError as exc:
        message = f"the stored result of step {name!r:.60} does not fit its function: {exc}"
        raise PayloadError(message, field="result") from exc
