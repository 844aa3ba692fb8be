"""In-memory engine: one state, one lock, and handles that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

from forebay.clock import Clock, SystemClock
from forebay.domain.job import JobId, NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError
from forebay.stores import id_generator
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.engine import Features
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups
from forebay.stores.memory.reader import MemoryReader
from forebay.stores.memory.state import State
from forebay.stores.memory.store import MemoryStore
from forebay.stores.memory.wakeups import MemoryWakeups, WakeupBroadcast

NO_TRANSACTIONS: Final = (
    "the memory engine has no transactions to join; use sqlite:/// or postgresql:// for that"
)


class MemoryEngine:
    """Engine whose jobs live as long as this object. Its handles may be used by several threads at once."""

    features: Features = Features(
        name="memory", is_durable=False, is_shared=False, joins_transactions=False, has_one_writer=True
    )

    def __init__(
        self, *, clock: Clock | None = None, new_id: Callable[[], JobId] = id_generator.new_id
    ) -> None:
        self._clock = clock or SystemClock()
        self._state = State(new_id)
        self._lock = RLock()
        self._broadcast = WakeupBroadcast()

    def store(self) -> Store:
        return MemoryStore(self.change_state)

    def reader(self) -> Reader:
        return MemoryReader(self.read_state)

    @property
    def location(self) -> str:
        return f"memory of this program at {id(self):#x}"

    def migrate(self) -> int:
        return self.store().migrate()

    def check_schema(self) -> None:
        pass  # there is no schema

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        raise ConfigError(NO_TRANSACTIONS)

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        raise ConfigError(NO_TRANSACTIONS)

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NO_TRANSACTIONS)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NO_TRANSACTIONS)

    def wakeups(self) -> Wakeups:
        return MemoryWakeups(self._broadcast)

    @contextmanager
    def read_state(self) -> Iterator[State]:
        """Yield the state while no other thread changes it."""
        with self._lock:
            self._state.now = self._clock.now_ms()
            yield self._state

    @contextmanager
    def change_state(self) -> Iterator[State]:
        """Yield the state for one call that happens completely or not at all."""
        with self._lock:
            self._state.begin(self._clock.now_ms())
            try:
                yield self._state
            except BaseException:
                self._state.undo()
                raise
            needs_wakeup = self._state.needs_wakeup
        if needs_wakeup:
            self._broadcast.broadcast()
