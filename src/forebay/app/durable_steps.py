"""Results of durable steps, encoded for the store and decoded for the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.errors import PayloadError
from forebay.payload.codec import decode_result, encode_result
from forebay.payload.coercion import Coercion


def encode_step(name: str, value: Any) -> bytes:
    """Encode the result of a step; raise PayloadError if it cannot be stored."""
    try:
        return encode_result(value)
    except PayloadError as exc:
        raise PayloadError(
            f"the result of step {name!r:.60} cannot be stored: {exc}", field="result"
        ) from exc


def decode_step(name: str, fn: Callable[..., Any], data: bytes) -> Any:
    """Decode the stored result of a step into the class that the annotation of `fn` names."""
    value = decode_result(data)
    try:
        coercion = Coercion(fn)
    except (ValueError, TypeError):  # some built-in functions have no readable signature
        return value
    try:
        return coercion.coerce_result(value)
    except PayloadError as exc:
        message = f"the stored result of step {name!r:.60} does not fit its function: {exc}"
        raise PayloadError(message, field="result") from exc
