"""Generator of ids of jobs and workers: ULIDs made from a UUIDv7's bits, increasing within a process.

An id may contain a seq of the store: `SeqIds` puts it into the first bits that a UUIDv7 leaves free (48 bits
of time, then 15 more), and `seq_in_id` reads it back. Such a store needs no index to find a job by its id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final
from weakref import WeakSet

import uuid_utils

from forebay.deferred_interrupts import hold_lock
from forebay.domain.job import JobId, WorkerId
from forebay.domain.ulid import decode_ulid, encode_ulid, encode_ulids
from forebay.errors import InvalidJob

SEQS_PER_MS: Final = 2**15
RANDOM_BITS: Final = 59
_TIME_SHIFT: Final = 80  # bits behind the time
_VERSION_AND_VARIANT: Final = 7 << 76 | 0b10 << 62
_FIXED_BITS: Final = 0xF << 76 | 0b11 << 62


_generators: Final[WeakSet[IdGenerator]] = WeakSet()  # all of this process


class IdGenerator:
    """Generator of ids that sort by the time of their creation. It never returns an id twice."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0
        _generators.add(self)

    def __call__(self) -> JobId:
        with hold_lock(self._lock):
            # The clock may be set back; the order of ids must not follow it.
            bits = max(uuid_utils.uuid7().int, self._last + 1)
            self._last = bits
        return JobId(encode_ulid(bits))

    def create_many(self, count: int) -> list[JobId]:
        """Create several consecutive ids: 0.2 us each instead of 1.9."""
        with hold_lock(self._lock):
            first = max(uuid_utils.uuid7().int, self._last + 1)
            self._last = first + count - 1
        return [JobId(text) for text in encode_ulids(first, count)]

    def start_over(self) -> None:
        """Start anew in a forked process. Another thread of the parent may have held the lock, and does not
        exist here.

        The last id of the parent is forgotten: with a clock behind it, parent and children would all count on
        from the same number. uuid-utils has its random numbers seeded anew by then.
        """
        self._lock = Lock()
        self._last = 0


def create_ids(new_id: Callable[[], JobId], count: int) -> list[JobId]:
    """Create ids for the jobs of one call; most calls have one job."""
    if count > 1 and isinstance(new_id, IdGenerator):
        return new_id.create_many(count)
    return [new_id() for _ in range(count)]


def iter_ids(new_id: Callable[[], JobId], max_ids: int) -> Iterator[JobId]:
    """Yield ids for at most so many jobs of one call. A caller's own function is called only for those
    that are used, in their order."""
    if isinstance(new_id, IdGenerator):
        return iter(create_ids(new_id, max_ids))
    return iter(new_id, JobId(""))


# One for the process: two engines side by side must not create ids that interleave.
new_id: IdGenerator = IdGenerator()


def _start_over() -> None:
    for generator in _generators:
        generator.start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def new_worker_id() -> WorkerId:
    """Return a worker id that no other process has; worker ids sort by the time of their creation.

    Two workers with one id would settle each other's jobs, so all bits after the time come from the system:
    neither a fork nor a clock that was set back can repeat them.
    """
    time = uuid_utils.uuid7().int >> _TIME_SHIFT << _TIME_SHIFT
    return WorkerId(encode_ulid(time | int.from_bytes(os.urandom(_TIME_SHIFT // 8))))


def first_seq(now_ms: int) -> int:
    """Return the first seq of a millisecond."""
    return now_ms * SEQS_PER_MS


class SeqIds:
    """Ids that contain the seq of their job; `noise` is a random number of 59 bits that all of them share.

    That is enough: the seq alone distinguishes them in their store. Sixteen consecutive seqs share the first
    half of their ids, and there are sixteen second halves: 0.2 us an id instead of 1.4.
    """

    def __init__(self, noise: int) -> None:
        # After 13 characters comes one of eight, with the variant and three bits of the number. The number's
        # last bit is the first of what follows.
        evens, odds = encode_ulid(noise)[14:], encode_ulid(1 << RANDOM_BITS | noise)[14:]
        self._suffixes = [letter + end for letter in "89ABRSTV" for end in (evens, odds)]
        self._sixteen = -1
        self._start = ""

    def __call__(self, seq: int) -> JobId:
        if seq >> 4 != self._sixteen:
            self._sixteen = seq >> 4
            self._start = encode_ulid((seq >> 15) << 80 | 7 << 76 | (seq >> 3 & 0xFFF) << 64)[:13]
        return self._start + self._suffixes[seq & 15]  # type: ignore[return-value]  # a JobId is a text


def seq_in_id(job_id: str) -> int | None:
    """Return the seq in an id; None if it cannot be an id of ours."""
    try:
        bits = decode_ulid(job_id)
    except InvalidJob:
        return None
    if bits & _FIXED_BITS != _VERSION_AND_VARIANT:
        return None
    return (bits >> 80) << 15 | (bits >> 64 & 0xFFF) << 3 | bits >> RANDOM_BITS & 7
