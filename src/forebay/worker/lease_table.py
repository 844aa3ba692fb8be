"""The page that a worker process shares with its supervisor: one line for each lease it holds.

The supervisor reads it to renew the leases whatever the worker does, and after the worker's death to know
which of its jobs had begun. Nobody locks anything: each byte has one writer, and what a reader sees too
early or half written is harmless, for these reasons.

- A line counts while its state is not FREE, and the state is written last when a line is filled. A reader
  copies a line twice and drops it if the copies differ. What could still slip through is a mixture of an old
  and a new line, and with such a pair of job id and attempt nobody can do harm: each renewal and each
  settlement is guarded by job id, attempt and worker, so the store refuses it.
- A dead process writes nothing, and what it wrote stays in the order in which it wrote it. So after a death
  every line that counts is whole.
- Whether a job begins or goes back is decided by two bytes. The worker writes STARTED and then reads
  `wanted`; the supervisor writes `wanted` and reads `state` after it has waited for a quarter of a second at
  least. If the worker has read `wanted` as 0, it had written its state before that byte became visible, and a
  quarter of a second later the state is visible too: the supervisor sees that the job runs and leaves
  it alone. If the supervisor sees a line that is not started, every later look of the worker finds `wanted`
  set, and it does not begin. If both see each other, the worker does not run the job and gives it back
  itself, like everything that it could not start. So a job never begins here after it was given to others,
  and none is forgotten.
"""

from __future__ import annotations

import mmap
import os
from math import inf
from struct import Struct
from typing import Final

import msgspec

from forebay.domain.job import Job, JobId
from forebay.domain.lease import Lease

# An id that a caller brings may have 200 characters, each of up to four bytes.
ROW_BYTES: Final = 1_024
# Slots and surplus of the largest worker that we think of; only lines that were ever used take memory.
MAX_ROWS: Final = 65_536

STOPPED: Final = -1.0

FREE: Final = 0
LEASED: Final = 1
STARTED: Final = 2

_STATE: Final = 0
_RETURN_REQUESTED: Final = 1
_BODY: Final = Struct("=QdddH")  # attempt, leased at, length of the lease, time limit, length of the id
_BODY_AT: Final = 8
_LEASED_STRUCT: Final = Struct("=d")
_LEASED_AT: Final = _BODY_AT + 8
_STARTED_STRUCT: Final = Struct("=d")
_STARTED_AT: Final = _BODY_AT + _BODY.size
_ID_AT: Final = _STARTED_AT + _STARTED_STRUCT.size
_HEADER: Final = Struct("=dQ")  # the coordinator's last turn, lines in use at most
_RENEWED_STRUCT: Final = Struct("=d")  # written by the supervisor alone
_RENEWED_AT: Final = 64


class LeaseEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a line says. Times are by CLOCK_MONOTONIC, which is one for all processes of a machine; lengths
    are seconds, `timeout` is infinite where there is none."""

    number: int
    lease: Lease
    leased_at: float
    lease_seconds: float
    timeout: float
    started_at: float | None

    def is_within_timeout(self, now: float) -> bool:
        """Whether the job runs and may still do so."""
        return self.started_at is not None and now < self.started_at + self.timeout


class LeaseRow:
    """One line, as its worker sees it."""

    __slots__ = ("_offset", "_table")

    def __init__(self, table: LeaseTable, offset: int) -> None:
        self._table = table
        self._offset = offset

    def start(self, now: float) -> bool:
        """The job begins; false if the supervisor wants it for others. The order of the lines matters."""
        memory, at = self._table.memory, self._offset
        _STARTED_STRUCT.pack_into(memory, at + _STARTED_AT, now)
        memory[at + _STATE] = STARTED
        if memory[at + _RETURN_REQUESTED]:
            memory[at + _STATE] = LEASED
            return False
        return True

    def renew(self, leased_at: float) -> None:
        """The store has given this lease again."""
        _LEASED_STRUCT.pack_into(self._table.memory, self._offset + _LEASED_AT, leased_at)

    def free(self) -> None:
        self._table.memory[self._offset + _STATE] = FREE
        self._table.free_rows.append(self)


class LeaseTable:
    """Shared memory with a header and lines. Written by one worker process, by its coordinator and, for a job
    that begins, by whoever runs it. Read by its supervisor, which writes nothing but wishes and the time of
    its last renewal."""

    def __init__(self, descriptor: int, rows: int = MAX_ROWS) -> None:
        self.descriptor = descriptor
        self.memory: mmap.mmap = mmap.mmap(descriptor, (rows + 1) * ROW_BYTES)
        self.free_rows: list[LeaseRow] = []  # last in, first out: so few pages of memory are ever touched
        self._max_rows = rows
        self._used = 0

    @classmethod
    def create(cls, rows: int = MAX_ROWS) -> LeaseTable:
        """A new page that others can be given by its descriptor."""
        descriptor = _create_anonymous_file()
        try:
            os.ftruncate(descriptor, (rows + 1) * ROW_BYTES)
            return cls(descriptor, rows)
        except BaseException:
            os.close(descriptor)
            raise

    # The worker's side

    @property
    def renewed_at(self) -> float:
        """When the supervisor has last renewed all that was due, and beaten for this worker; 0 before the
        first time. A time that is read half written costs one beat too many, or one that is a tick late."""
        return float(_RENEWED_STRUCT.unpack_from(self.memory, _RENEWED_AT)[0])

    def mark_tick(self, now: float) -> None:
        """The coordinator has played a turn."""
        _HEADER.pack_into(self.memory, 0, now, self._used)

    def write(self, job: Job, leased_at: float) -> LeaseRow | None:
        """A line for a lease that has just been taken. None when the page is full: such a lease is not
        renewed, and runs out if its job takes long."""
        line = self.free_rows.pop() if self.free_rows else self._allocate_row()
        if line is None:
            return None
        at = line._offset
        name = job.id.encode()
        length = ((job.lease_expires_at or 0) - (job.started_at or 0)) / 1_000
        timeout = inf if job.timeout_ms is None else job.timeout_ms / 1_000
        memory = self.memory
        memory[at + _RETURN_REQUESTED] = 0
        _BODY.pack_into(memory, at + _BODY_AT, job.attempt, leased_at, length, timeout, len(name))
        memory[at + _ID_AT : at + _ID_AT + len(name)] = name
        memory[at + _STATE] = LEASED
        return line

    def _allocate_row(self) -> LeaseRow | None:
        if self._used >= self._max_rows:
            return None
        self._used += 1
        # Told at once: a reader looks no further than this.
        _HEADER.pack_into(self.memory, 0, self.ticked_at, self._used)
        return LeaseRow(self, self._used * ROW_BYTES)

    # The supervisor's side

    @property
    def ticked_at(self) -> float:
        """When the coordinator has played a turn; 0 before the first, and PLAYED when there are no more."""
        return float(_HEADER.unpack_from(self.memory, 0)[0])

    def entries(self) -> list[LeaseEntry]:
        """What all lines say that count."""
        used = min(_HEADER.unpack_from(self.memory, 0)[1], self._max_rows)
        read = (
            self._read_entry(number)
            for number in range(1, used + 1)
            if self.memory[number * ROW_BYTES + _STATE]
        )
        return [entry for entry in read if entry is not None]

    def mark_renewed(self, now: float) -> None:
        """Say that all leases which were due at this time are renewed, and that the worker has beaten."""
        _RENEWED_STRUCT.pack_into(self.memory, _RENEWED_AT, now)

    def request_return(self, entry: LeaseEntry) -> None:
        """Say that a job which has not begun shall not begin."""
        self.memory[entry.number * ROW_BYTES + _RETURN_REQUESTED] = 1

    def is_started(self, entry: LeaseEntry) -> bool:
        """Whether the job of this entry has begun, or the line is not its own any more."""
        now = self._read_entry(entry.number)
        return now is None or now.lease != entry.lease or now.started_at is not None

    def _read_entry(self, number: int) -> LeaseEntry | None:
        at = number * ROW_BYTES
        copy = self.memory[at : at + ROW_BYTES]
        if copy[_STATE] not in (LEASED, STARTED) or copy != self.memory[at : at + ROW_BYTES]:
            return None
        attempt, leased_at, length, timeout, size = _BODY.unpack_from(copy, _BODY_AT)
        try:
            name = copy[_ID_AT : _ID_AT + size].decode()
        except UnicodeDecodeError:
            return None  # half written
        started_at = _STARTED_STRUCT.unpack_from(copy, _STARTED_AT)[0] if copy[_STATE] == STARTED else None
        return LeaseEntry(
            number=number,
            lease=Lease(JobId(name), attempt),
            leased_at=leased_at,
            lease_seconds=length,
            timeout=timeout,
            started_at=started_at,
        )

    def close(self) -> None:
        """Let go of the memory; closing twice is fine."""
        if not self.memory.closed:
            self.memory.close()
            os.close(self.descriptor)


def _create_anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("forebay-page")
    import tempfile  # noqa: PLC0415 - brings a megabyte along, and few systems need it

    descriptor, name = tempfile.mkstemp(prefix="forebay-page-")
    os.unlink(name)
    return descriptor
