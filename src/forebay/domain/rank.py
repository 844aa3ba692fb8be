"""The one integer that orders waiting jobs: lowest first, ties by seq.

    rank = ready_at - points * aging_ms      points = priority - failures * retry_penalty + deadline boost

All jobs age at the same rate, so ageing needs no rewriting. What does change with time is rewritten a
fixed number of times in a job's life, when `rescore_at` has come: the deadline's boost climbs in eight
steps, and a job whose age has earned the greatest bonus moves, once, to the capped class. There its
place is fixed by its points alone: rank = -points * aging_ms.

Points are counted in thousandths and every division cuts towards zero, as SQL does, so that each
engine comes to the same integers. All of them stay below 2**53.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

STRICT_AGING_MS: Final = 2**40
STEPS: Final = 8
MAX_PENALTY: Final = 100_000


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue weighs priority, age, failures and deadlines. Points are thousandths."""

    aging_ms: int = 3_600_000
    cap: int | None = 50_000
    retry_penalty: int = 2_000
    deadline_weight: int = 30_000
    deadline_horizon_ms: int = 3_600_000

    @property
    def cap_ms(self) -> int:
        """The wait after which a job's age earns nothing more; 0 for a queue without a cap."""
        return 0 if self.cap is None else points_to_ms(self, self.cap)


class QueueRank(NamedTuple):
    """Where a job stands in its queue's order, and when that has to be worked out again."""

    age_capped: bool
    rank: int
    rescore_at: int | None


def compute_rank(
    scoring: Scoring, *, ready_at: int, priority: int, failures: int, deadline_at: int | None, now: int
) -> QueueRank:
    """The place of a waiting job at the time `now`."""
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
    """The wait that is worth this many thousandths of a point."""
    product = points * scoring.aging_ms
    return product // 1_000 if product >= 0 else -(-product // 1_000)


def deadline_step(scoring: Scoring, deadline_at: int, now: int) -> tuple[int, int | None]:
    """Which of the eight steps towards its deadline a job has reached, and when the next one is."""
    if scoring.deadline_weight == 0:
        return 0, None
    horizon = scoring.deadline_horizon_ms
    begins_at = deadline_at - horizon
    if now >= deadline_at:
        return STEPS, None
    step = max((now - begins_at) * STEPS // horizon, 0) if now >= begins_at else 0
    # Rounded up: at the instant named here the step must really have been reached.
    return step, begins_at + -(-horizon * (step + 1) // STEPS)


def effective_priority(scoring: Scoring, queue_rank: QueueRank, now: int) -> int:
    """What a claim compares between the two classes: the greater lead goes first, ties by seq."""
    return (scoring.cap_ms if queue_rank.age_capped else now) - queue_rank.rank
