"""Lease table in shared memory: one row per lease, written by the worker, read by its supervisor.

The supervisor reads it to renew the leases whatever the worker does, and after the worker's death to know
which of its jobs had begun. There are no locks: each byte has one writer. A value that is read too early or
half written is harmless, for these reasons.

- A row counts while its state is not FREE, and the state is written last when a row is filled. A reader
  copies a row twice and drops it if the copies differ. A mixture of an old and a new row could still pass.
  Such a pair of job id and attempt does no harm: renewals and settlements are guarded by job id, attempt and
  worker, so the store refuses it.
- A dead process writes nothing, and its writes stay in their order. So after a death every row that counts is
  complete.
- Whether a job begins or goes back is decided by two bytes. The worker writes STARTED and then reads
  `return_requested`; the supervisor writes `return_requested` and reads `state` at least a quarter of a
  second later. If the worker reads `return_requested` as 0, it wrote its state before that byte became
  visible. A quarter of a second later the state is visible too: the supervisor sees that the job runs and
  leaves it alone. If the supervisor sees a row that is not started, every later check of the worker finds
  `return_requested` set, and the job does not begin. If both see each other, the worker does not run the job
  and hands it back itself, like every job that it could not start. So a job never begins here after it was
  given to others, and none is forgotten.
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
# Slots and prefetched jobs of the largest worker that is expected; only rows that were ever used take memory.
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
_HEADER: Final = Struct("=dQ")  # the coordinator's last tick, number of rows ever used
_RENEWED_STRUCT: Final = Struct("=d")  # written by the supervisor alone
_RENEWED_AT: Final = 64


class LeaseEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a row.

    Times are by CLOCK_MONOTONIC, which all processes of a machine share. Lengths are seconds; `timeout` is
    infinite where there is none.
    """

    number: int
    lease: Lease
    leased_at: float
    lease_seconds: float
    timeout: float
    started_at: float | None

    def is_within_timeout(self, now: float) -> bool:
        """Return whether the job runs and its time limit has not passed."""
        return self.started_at is not None and now < self.started_at + self.timeout


class LeaseRow:
    """One row, as its worker sees it."""

    __slots__ = ("_offset", "_table")

    def __init__(self, table: LeaseTable, offset: int) -> None:
        self._table = table
        self._offset = offset

    def start(self, now: float) -> bool:
        """Mark the job as started; return false if the supervisor has requested its return. The order of the
        statements matters."""
        memory, offset = self._table.memory, self._offset
        _STARTED_STRUCT.pack_into(memory, offset + _STARTED_AT, now)
        memory[offset + _STATE] = STARTED
        if memory[offset + _RETURN_REQUESTED]:
            memory[offset + _STATE] = LEASED
            return False
        return True

    def renew(self, leased_at: float) -> None:
        """Record that the store has given this lease again."""
        _LEASED_STRUCT.pack_into(self._table.memory, self._offset + _LEASED_AT, leased_at)

    def free(self) -> None:
        self._table.memory[self._offset + _STATE] = FREE
        self._table.free_rows.append(self)


class LeaseTable:
    """Shared memory with a header and rows.

    One worker process writes it: its coordinator and, when a job begins, the thread that runs the job. Its
    supervisor reads it, and writes nothing but requests to return jobs and the time of its last renewal.
    """

    def __init__(self, descriptor: int, rows: int = MAX_ROWS) -> None:
        self.descriptor = descriptor
        self.memory: mmap.mmap = mmap.mmap(descriptor, (rows + 1) * ROW_BYTES)
        self.free_rows: list[LeaseRow] = []  # last in, first out: so few pages of memory are ever touched
        self._max_rows = rows
        self._used = 0

    @classmethod
    def create(cls, rows: int = MAX_ROWS) -> LeaseTable:
        """Create a table that other processes map by its descriptor."""
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
        """Time at which the supervisor last renewed all due leases and wrote this worker's heartbeat; 0
        before the first.

        A time that is read half written costs one heartbeat too many, or one that is a tick late.
        """
        return float(_RENEWED_STRUCT.unpack_from(self.memory, _RENEWED_AT)[0])

    def mark_tick(self, now: float) -> None:
        """Record a tick of the coordinator."""
        _HEADER.pack_into(self.memory, 0, now, self._used)

    def write(self, job: Job, leased_at: float) -> LeaseRow | None:
        """Add a row for a new lease. Return None if the table is full: such a lease is not renewed, and runs
        out if its job takes long."""
        row = self.free_rows.pop() if self.free_rows else self._allocate_row()
        if row is None:
            return None
        offset = row._offset
        job_id = job.id.encode()
        length = ((job.lease_expires_at or 0) - (job.started_at or 0)) / 1_000
        timeout = inf if job.timeout_ms is None else job.timeout_ms / 1_000
        memory = self.memory
        memory[offset + _RETURN_REQUESTED] = 0
        _BODY.pack_into(memory, offset + _BODY_AT, job.attempt, leased_at, length, timeout, len(job_id))
        memory[offset + _ID_AT : offset + _ID_AT + len(job_id)] = job_id
        memory[offset + _STATE] = LEASED
        return row

    def _allocate_row(self) -> LeaseRow | None:
        if self._used >= self._max_rows:
            return None
        self._used += 1
        # Written at once: a reader looks no further than this.
        _HEADER.pack_into(self.memory, 0, self.ticked_at, self._used)
        return LeaseRow(self, self._used * ROW_BYTES)

    # The supervisor's side

    @property
    def ticked_at(self) -> float:
        """Time of the coordinator's last tick; 0 before the first, and STOPPED after the last."""
        return float(_HEADER.unpack_from(self.memory, 0)[0])

    def entries(self) -> list[LeaseEntry]:
        """Return the content of all rows that count."""
        used = min(_HEADER.unpack_from(self.memory, 0)[1], self._max_rows)
        rows = (
            self._read_entry(number)
            for number in range(1, used + 1)
            if self.memory[number * ROW_BYTES + _STATE]
        )
        return [entry for entry in rows if entry is not None]

    def mark_renewed(self, now: float) -> None:
        """Record that all leases due at this time are renewed, and that the worker's heartbeat was
        written."""
        _RENEWED_STRUCT.pack_into(self.memory, _RENEWED_AT, now)

    def request_return(self, entry: LeaseEntry) -> None:
        """Request that a job which has not begun shall not begin."""
        self.memory[entry.number * ROW_BYTES + _RETURN_REQUESTED] = 1

    def is_started(self, entry: LeaseEntry) -> bool:
        """Return whether the job of this entry has begun, or the row is no longer its own."""
        current = self._read_entry(entry.number)
        return current is None or current.lease != entry.lease or current.started_at is not None

    def _read_entry(self, number: int) -> LeaseEntry | None:
        offset = number * ROW_BYTES
        row = self.memory[offset : offset + ROW_BYTES]
        if row[_STATE] not in (LEASED, STARTED) or row != self.memory[offset : offset + ROW_BYTES]:
            return None
        attempt, leased_at, length, timeout, size = _BODY.unpack_from(row, _BODY_AT)
        try:
            job_id = row[_ID_AT : _ID_AT + size].decode()
        except UnicodeDecodeError:
            return None  # half written
        started_at = _STARTED_STRUCT.unpack_from(row, _STARTED_AT)[0] if row[_STATE] == STARTED else None
        return LeaseEntry(
            number=number,
            lease=Lease(JobId(job_id), attempt),
            leased_at=leased_at,
            lease_seconds=length,
            timeout=timeout,
            started_at=started_at,
        )

    def close(self) -> None:
        """Release the memory; closing twice is fine."""
        if not self.memory.closed:
            self.memory.close()
            os.close(self.descriptor)


def _create_anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("forebay-leases")
    import tempfile  # noqa: PLC0415 - brings a megabyte along, and few systems need it

    descriptor, name = tempfile.mkstemp(prefix="forebay-leases-")
    os.unlink(name)
    return descriptor
