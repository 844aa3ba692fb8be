"""Clock of the store, with readings recorded for programs that start later."""

from __future__ import annotations

from forebay.stores.contract.clock_readings import (
    NAMES,
    ClockReading,
    is_recorded,
    latest_old_enough,
    slot_name,
)
from forebay.stores.shared.rows import json_text
from forebay.stores.sqlite.transaction import Transaction


def read_clock(tx: Transaction) -> ClockReading:
    """Read the clock and record the reading. The write lock makes this one step."""
    names = {"names": json_text(NAMES)}
    recorded: dict[str, int] = dict(tx.all("clock_readings", names))
    slot = slot_name(tx.now)
    if not is_recorded(tx.now, recorded.get(slot)):
        tx.run("clock_record", {"name": slot, "now": tx.now})
    return ClockReading(now=tx.now, earlier=latest_old_enough(tx.now, list(recorded.values())))
