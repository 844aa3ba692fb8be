"""Types that msgspec describes completely before threads share them.

msgspec describes a class at its first use, and publishes the description before the last field is in it. A
second thread that decodes the class meanwhile reads a null pointer, and the process dies by SIGSEGV. Decoders
of modules are safe: they exist before the threads do. A type that a function decodes goes through
`prepare_type`.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, TypeVar

from msgspec.msgpack import Decoder

from forebay.deferred_interrupts import uninterrupted

T = TypeVar("T")

_lock: Final = Lock()
_prepared: Final[set[object]] = set()


def prepare_type(kind: T) -> T:
    """Return a type that msgspec has described, with all types in it.

    The lock closes the race: all types of functions come through here, so no thread sees a description that
    another one has begun. A type is entered as prepared when its description is complete.
    """
    if kind not in _prepared:
        with uninterrupted, _lock:
            Decoder(kind)
            _prepared.add(kind)
    return kind
