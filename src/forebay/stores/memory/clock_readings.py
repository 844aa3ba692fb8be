"""Clock of the store, with readings recorded for programs that start later."""

from __future__ import annotations

from forebay.stores.contract.clock_readings import (
    NAMES,
    ClockReading,
    is_recorded,
    latest_old_enough,
    slot_name,
)
from forebay.stores.memory.state import State


def read_clock(state: State, *, record: bool) -> ClockReading:
    if not record:
        return ClockReading(now=state.now)
    recorded = [state.maintenance[name] for name in NAMES if name in state.maintenance]
    slot = slot_name(state.now)
    if not is_recorded(state.now, state.maintenance.get(slot)):
        state.write(state.maintenance, slot, state.now)
    return ClockReading(now=state.now, earlier=latest_old_enough(state.now, recorded))
