"""Completion in the caller's own transaction: what all engines say about it."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import JobId
from forebay.domain.settlement import Settlement
from forebay.errors import LeaseLost
from forebay.stores.protocol import LeaseRefusal


def check_completed(
    settlement: Settlement, settled: Sequence[JobId], refused: Sequence[LeaseRefusal]
) -> None:
    """Raise unless the job has just been completed: what else the transaction does must not be committed.

    That this very attempt had completed it before is no excuse: its effects are there already.
    """
    if settlement.job_id in settled:
        return
    reason = refused[0].reason if refused else "it was completed before"
    raise LeaseLost(
        f"job {settlement.job_id}, attempt {settlement.attempt}, cannot be completed: {reason}; roll back"
    )
