"""A store that writes down which calls reach it, and can fail on command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement
from forebay.errors import StoreBusy
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store

Trouble = Callable[[str, tuple[Any, ...]], None]


class Watched:
    """Every call goes on to the real store; `calls` names them, `trouble` may raise instead of one.

    With `too_late` the trouble comes when the store has done its work, as when an answer is lost.
    """

    def __init__(self, store: Store, trouble: Trouble | None = None, *, too_late: bool = False) -> None:
        self._store = store
        self._trouble = trouble
        self._too_late = too_late
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if self._trouble is not None and not self._too_late:
                self._trouble(name, args)
            answer = method(*args, **options)
            if self._trouble is not None and self._too_late:
                self._trouble(name, args)
            return answer

        return call

    @property
    def contract(self) -> Store:
        """This one, as what it stands in for."""
        return cast(Store, self)


class Held(Watched):
    """A store in which another transaction locks the rows of `leases`, or the queues of each claim."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.leases: set[Lease] = set()
        self.is_claim_held = False

    def settle_and_claim(
        self,
        worker: object,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> Any:
        ended = {Lease(end.job_id, end.attempt) for end in settlements}
        updated = {update.lease for update in updates}
        self.calls.append("settle_and_claim")
        if (ended | updated) & self.leases or (claims and self.is_claim_held):
            raise StoreBusy("another transaction holds it")
        return self._store.settle_and_claim(cast(Any, worker), settlements, claims, room, known, updates)
