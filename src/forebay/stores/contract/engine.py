"""The seam between Forebay and a storage engine: the whole contract, written once.

An `Engine` is an address. It opens handles: a `Store` to write, a `Reader` to look, `Wakeups` to listen.
A handle is blocking, cheap to open and used by one thread at a time. Engines know nothing of tasks,
retries or policies; the suite in `tests/stores/contract` speaks for this page.

Rules that hold for every method of `Store`:

- One call is one transaction: it happens whole or not at all. A call that raises `StoreUnavailable` may
  have happened if the answer was lost; all others that raise have changed nothing. Nor has one that
  raises `StoreBusy`: another transaction, mostly a caller's own, holds a key, an id or a job that it needs.
- Every time is the store's own clock; callers speak in delays.
- Every transition is guarded in the statement that makes it, by the state the job must be in and, for
  lease holders, by job id, attempt and worker id. What the guard refuses is reported, never half done.
- Whatever ends, moves or deletes a job keeps the counts by queue and state right, and frees only keys
  that name this very job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from forebay.domain.job import NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import InsertResult, OnConflict


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Where engines differ; the contract suite reads it."""

    name: str
    is_durable: bool
    is_shared: bool  # several processes may open it
    joins_transactions: bool  # jobs can be enqueued in the caller's own transaction
    # It can tell when a worker's process dies. Where a worker is only known by its connection, it cannot: one
    # that was cut off is alive and works.
    notices_death: bool = False
    # One hint may stand for all new jobs of the next moments: whoever has heard it looks again for a while.
    coalesces_wakeups: bool = False
    # Somebody behind it does the duties, so those who consume leave them alone.
    runs_maintenance: bool = False
    # Of several handles one writes at a time, and the others wait for it.
    has_one_writer: bool = False


class Wakeups(Protocol):
    """Hints that work may have come. Losing one costs delay, never a job."""

    def start(self, on_wakeup: Callable[[], None]) -> None:
        """Call `on_wakeup`, on a thread of its own, whenever somebody may have enqueued or changed
        something."""
        ...

    def close(self) -> None:
        """Stop listening; closing twice, or before the start, is fine."""
        ...


class Engine(Protocol):
    """One storage engine at one address. Making it does no I/O; opening a handle does."""

    @property
    def features(self) -> Features: ...

    @property
    def location(self) -> str:
        """Where the jobs are: the same text for all engines that share them, whatever their options."""
        ...

    def store(self) -> Store:
        """Open a handle to write, creating the schema if the engine does so by itself."""
        ...

    def reader(self) -> Reader:
        """Open a handle to look."""
        ...

    def wakeups(self) -> Wakeups:
        """A listener for hints; `start` makes it listen."""
        ...

    def migrate(self) -> int:
        """Create the schema or apply the steps that it needs, and answer its number; also where `store()`
        refuses an older schema."""
        ...

    def check_schema(self) -> None:
        """Look whether the store is there and has what this program needs; nothing is created or changed.
        Raises StoreUnusable where there is nothing of ours, SchemaOutdated and SchemaNewer where it is of
        another age."""
        ...

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        """Accept jobs in the caller's own open transaction: they come true with its commit and vanish with
        its rollback. Workers hear of them with the commit, or find them by the poll. Raises ConfigError where
        an engine cannot (see `Features`), for a connection of another kind, and without an open
        transaction."""
        ...

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        """`insert_within` with a connection that lives on the event loop of the caller."""
        ...

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """End a lease as completed in the caller's own open transaction: the job and what else is done there
        come true together, and so once. Raises LeaseLost if the lease is not held, and as `insert_within`.

        Until that transaction ends nobody waits for the job: its lease is passed over by renewals, which
        count it as renewed, and by sweeps. `Store.standing` says what has come of it."""
        ...

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """`complete_within` with a connection that lives on the event loop of the caller."""
        ...
