"""Transactional outbox for SQLAlchemy: the table, and the relay that carries its jobs to the store."""

from __future__ import annotations

from forebay.integrations.outbox.relay import (
    OutboxStats,
    Relay,
    RelayResult,
    outbox_stats,
    relay_batch,
    run_relay,
)
from forebay.integrations.outbox.table import Outbox, outbox_table

__all__ = [
    "Outbox",
    "OutboxStats",
    "Relay",
    "RelayResult",
    "outbox_stats",
    "outbox_table",
    "relay_batch",
    "run_relay",
]
