"""Duties: what has to be done by the clock with a store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from forebay.errors import StoreError
from forebay.stores.protocol import Store

# More than this at a time, and whoever runs the duties would neglect its other work.
BATCHES_IN_A_ROW: Final = 10

logger: logging.Logger = logging.getLogger(__name__)


class Duty(Protocol):
    """Something to do every `every_ms`, by whoever comes first.

    A duty is bounded, safe to repeat and safe with any number of runners: there is no leader.
    """

    @property
    def name(self) -> str:
        """What it is called in `take_duty`."""
        ...

    @property
    def every_ms(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """Whether this runner may do it now. Asked before `take_duty`, so that one who must hold back does
        not use up the turn of one who need not."""
        ...

    def run(self, store: Store) -> bool:
        """Do one bounded batch; true if there is more to do."""
        ...


@runtime_checkable
class HoldsBack(Protocol):
    """A duty that could do harm right after an outage, and so wants to know when one is over."""

    def connected(self) -> None:
        """The store has just been reached again."""
        ...


@runtime_checkable
class HoldsHandles(Protocol):
    """A duty that keeps a handle of its own from turn to turn, or has one in a thread."""

    def close(self) -> None:
        """Let go of it: there will be no other turn. Doing so twice is fine."""
        ...


def close_duties(duties: Iterable[Duty]) -> None:
    """Say that there will be no other turn. One that goes wrong leaves neither the handles of the others nor
    those of whoever has run them behind."""
    for duty in duties:
        if isinstance(duty, HoldsHandles):
            try:
                duty.close()
            except Exception:
                logger.exception("the duty %r could not be closed", duty.name)


def tell_connected(duties: Iterable[Duty]) -> None:
    """Say that the store answers again. A duty cannot find that out by itself: during an outage its owner has
    no answer either, and so does not even come to run it."""
    for duty in duties:
        if isinstance(duty, HoldsBack):
            duty.connected()


def run_due(store: Store, duties: Iterable[Duty]) -> bool:
    """Do the duties that are due and that nobody else has done; true if one of them has more to do.

    Only what is wrong with the store gets out: that concerns whoever runs them too.
    """
    return any([_has_more(store, duty) for duty in duties])


def _has_more(store: Store, duty: Duty) -> bool:
    try:
        return duty.is_ready and store.take_duty(duty.name, duty.every_ms) and _run(store, duty)
    except StoreError:
        raise
    except Exception:
        # A fault in one duty costs neither the others their turn nor its runner the jobs it holds.
        logger.exception("the duty %r went wrong; it is tried again later", duty.name)
        return False


def _run(store: Store, duty: Duty) -> bool:
    # Ends with the first batch that leaves nothing to do.
    has_more = all(duty.run(store) for _ in range(BATCHES_IN_A_ROW))
    if has_more:
        # What piles up must not wait for the next turn, or it would pile up for ever.
        store.take_duty(duty.name, 0)
    return has_more
