"""Results of durable steps: encoded for the store, awaited there, decoded for the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from forebay.errors import LeaseLost, PayloadError
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


class PendingStep:
    """A step result on its way to the store. The waiting thread may be interrupted between any two bytecodes.

    So this is a bare lock and no Event. An Event has a lock of its own, and an interrupt at the wrong moment
    would leave it locked for the answering thread. The answering thread releases a bare lock, at most one
    thread waits for it, and a waiter that never returns blocks no other thread.
    """

    __slots__ = ("_answer_token", "_lock", "_on_answer", "refusal")

    def __init__(self, on_answer: Callable[[], object] | None = None) -> None:
        self.refusal: str | None = None
        self._on_answer = on_answer
        self._answer_token = [None]
        self._lock = Lock()
        self._lock.acquire()

    def answer(self, refusal: str | None = None) -> None:
        """Record that the step is stored, or refused for this reason. Of two answers the first counts."""
        try:
            self._answer_token.pop()
        except IndexError:
            return
        self.refusal = refusal
        self._lock.release()
        if self._on_answer is not None:
            with suppress(RuntimeError):  # the event loop that waits is gone
                self._on_answer()

    def wait(self, seconds: float) -> bool:
        """Return whether the answer has come within so many seconds; true once."""
        return self._lock.acquire(timeout=seconds)

    def check(self) -> None:
        """Raise LeaseLost if the step was refused."""
        if self.refusal is not None:
            raise LeaseLost(
                f"the step was not stored: {self.refusal}; "
                "the result of this attempt will be refused, so stop"
            )
