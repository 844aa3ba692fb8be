"""Rank: the one integer that orders pending jobs, lowest first, ties by seq.

    rank = ready_at - points * aging_ms      points = priority - failures * retry_penalty + deadline boost

All jobs age at the same rate, so ageing needs no rewriting. Other changes over time are written a fixed
number of times in a job's life, when `rescore_at` has come. The deadline's boost climbs in eight steps. A job
whose age has earned the greatest bonus moves, once, to the age-capped class. There its rank depends on its
points alone: rank = -points * aging_ms.

Points are counted in thousandths and every division cuts towards zero, as SQL does, so that each engine
computes the same integers. All of them stay below 2**53.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

STRICT_AGING_MS: Final = 2**40
STEPS: Final = 8
MAX_PENALTY: Final = 100_000


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of priority, age, failures and deadlines in a queue. Points are thousandths."""

    aging_ms: int = 3_600_000
    cap: int | None = 50_000
    retry_penalty: int = 2_000
    deadline_weight: int = 30_000
    deadline_horizon_ms: int = 3_600_000

    @property
    def cap_ms(self) -> int:
        """Return the wait after which a job's age earns nothing more; 0 for a queue without a cap."""
        return 0 if self.cap is None else points_to_ms(self, self.cap)


class QueueRank(NamedTuple):
    """Rank of a job in its queue, and when to compute it again."""

    age_capped: bool
    rank: int
    rescore_at: int | None


def compute_rank(
    scoring: Scoring, *, ready_at: int, priority: int, failures: int, deadline_at: int | None, now: int
) -> QueueRank:
    """Return the rank of a waiting job at the time `now`."""
    points = priority * 1_000
    next_step = None
    if failures:
        points -= min(failures * scoring.retry_penalty, MAX_PENALTY)
    if deadline_at is not None:
        step, next_step = deadline_step(scoring, deadline_at, now)
        points += scoring.deadline_weight * step * step // (STEPS * STEPS)
    worth = points_to_ms(scoring, points)
    if scoring.cap is None:
        return QueueRank(False, ready_at - worth, next_step)
    capped_from = ready_at + scoring.cap_ms
    if now >= capped_from:
        return QueueRank(True, -worth, next_step)
    rescore_at = capped_from if next_step is None else min(capped_from, next_step)
    return QueueRank(False, ready_at - worth, rescore_at)


def points_to_ms(scoring: Scoring, points: int) -> int:
    """Return the wait that is worth this many thousandths of a point."""
    product = points * scoring.aging_ms
    return product // 1_000 if product >= 0 else -(-product // 1_000)


def deadline_step(scoring: Scoring, deadline_at: int, now: int) -> tuple[int, int | None]:
    """Return which of the eight steps towards its deadline a job has reached, and when the next one is."""
    if scoring.deadline_weight == 0:
        return 0, None
    horizon = scoring.deadline_horizon_ms
    begins_at = deadline_at - horizon
    if now >= deadline_at:
        return STEPS, None
    step = max((now - begins_at) * STEPS // horizon, 0) if now >= begins_at else 0
    # Rounded up: at this instant the step must really have been reached.
    return step, begins_at + -(-horizon * (step + 1) // STEPS)


def effective_priority(scoring: Scoring, queue_rank: QueueRank, now: int) -> int:
    """Return the effective priority, which a claim compares between the two classes: greater first, ties
    by seq."""
    return (scoring.cap_ms if queue_rank.age_capped else now) - queue_rank.rank
