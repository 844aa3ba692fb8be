"""Clock of the store, with readings recorded for programs that start later."""

from __future__ import annotations

from forebay.stores.contract.clock_readings import (
    NAMES,
    ClockReading,
    is_recorded,
    latest_old_enough,
    slot_name,
)
from forebay.stores.postgres.transaction import Transaction


def read_clock(tx: Transaction, *, record: bool) -> ClockReading:
    """Read the clock and, with `record`, store the reading in its slot.

    Two transactions at once may both read before either writes. The second then replaces the first one's
    reading by one of the same moment: whatever the order, each slot has a time at which the clock was read.
    """
    if not record:
        return ClockReading(now=tx.now)
    recorded: dict[str, int] = dict(tx.all("clock_readings", {"names": list(NAMES)}))
    slot = slot_name(tx.now)
    if not is_recorded(tx.now, recorded.get(slot)):
        tx.run("clock_record", {"name": slot, "now": tx.now})
    return ClockReading(now=tx.now, earlier=latest_old_enough(tx.now, list(recorded.values())))
