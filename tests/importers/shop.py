"""The functions of a small shop, as they are imported by the old queue and by ours."""

from __future__ import annotations

from threading import Lock
from typing import Any

_lock = Lock()
DONE: list[Any] = []


def add(a: int, b: int) -> int:
    return a + b


def mail(to: Any, *, subject: str = "", **more: Any) -> str:
    """Keeps what it was called with; the list says how often."""
    with _lock:
        DONE.append((to, subject, *sorted(more.items())))
    return f"{to}: {subject}"


def fail(why: str) -> None:
    raise ValueError(why)


class Basket:
    """Something that is no plain data."""

    def total(self) -> int:
        return 7
