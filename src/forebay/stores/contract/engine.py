"""Engine protocol of the store contract: one storage engine at one address.

An `Engine` opens handles: a `Store` to write, a `Reader` to read, `Wakeups` to listen. A handle is blocking,
cheap to open and used by one thread at a time. Engines know nothing of tasks, retries or policies. The suite
in `tests/stores/contract` checks every engine against this contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from forebay.domain.job import NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Differences between engines; the contract suite reads them."""

    name: str
    is_durable: bool
    is_shared: bool  # several processes may open it
    joins_transactions: bool  # jobs can be enqueued in the caller's own transaction
    # It can tell when a worker's process dies. Where a worker is only known by its connection, it cannot: one
    # that was cut off is alive and works.
    notices_death: bool = False
    # One wake-up may stand for all new jobs of the next moments: its receiver polls again for a while.
    coalesces_wakeups: bool = False
    # The service behind it runs the maintenance tasks, so consumers leave them alone.
    runs_maintenance: bool = False
    # Of several handles one writes at a time, and the others wait for it.
    has_one_writer: bool = False


class Engine(Protocol):
    """One storage engine at one address. Creating it does no I/O; opening a handle does."""

    @property
    def features(self) -> Features: ...

    @property
    def location(self) -> str:
        """Location of the jobs: the same text for all engines that share them, whatever their options."""
        ...

    def store(self) -> Store:
        """Open a handle to write. Creates the schema if the engine does so by itself."""
        ...

    def reader(self) -> Reader:
        """Open a handle to read."""
        ...

    def wakeups(self) -> Wakeups:
        """Return a listener for wake-ups. It listens after its `start`."""
        ...

    def migrate(self) -> int:
        """Create the schema or apply the steps that it needs, and return its number. It also works where
        `store()` refuses an older schema.
        """
        ...

    def check_schema(self) -> None:
        """Check that the store exists and has the schema that this program needs. Creates and changes
        nothing.

        Raises StoreUnusable where there is no schema of Forebay, SchemaOutdated and SchemaNewer for a schema
        of another version.
        """
        ...

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        """Insert jobs in the caller's own open transaction: its commit stores them and its rollback removes
        them.

        Workers get a wake-up with the commit, or find the jobs by polling. Raises ConfigError where an engine
        cannot do this (see `Features`), for a connection of another kind, and without an open transaction.
        """
        ...

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        """Do the same as `insert_tx` with a connection that belongs to the caller's event loop."""
        ...

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """Settle a lease as completed in the caller's own open transaction. The job and the caller's writes
        commit together, and so exactly once.

        Raises LeaseLost if the lease is not held, and the errors of `insert_tx`. Until that transaction ends
        no other transaction waits for the job: sweeps skip its lease, and renewals skip it and report it as
        renewed. `Store.lease_status` returns how it ended.
        """
        ...

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        """Do the same as `complete_tx` with a connection that belongs to the caller's event loop."""
        ...
