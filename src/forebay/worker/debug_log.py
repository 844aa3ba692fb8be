"""What a worker's loop does with its jobs, told at debug level."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from forebay.domain.job import Job
from forebay.domain.settlement import Settlement
from forebay.telemetry.logs import job_fields
from forebay.worker.queue_selector import QueueSelector

logger: logging.Logger = logging.getLogger(__name__)


def log_claims(selector: QueueSelector, jobs: Sequence[Job]) -> None:
    """Which queues were asked, why in this order and for so many, and which jobs came of it."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    for queue, reason in selector.reasons():
        logger.debug("queue %s: %s", queue, reason, extra={"queue": queue})
    for job in jobs:
        logger.debug("job %s is running now, attempt %s", job.id, job.attempt, extra=job_fields(job))


def log_ends(ends: Iterable[tuple[Job, Settlement, float | None]]) -> None:
    """What became of attempts, once it was written."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    for job, end, seconds in ends:
        fields = {**job_fields(job), "state": end.state, "ending": end.outcome, "seconds": seconds}
        logger.debug(
            "job %s is %s now, attempt %s: %s", job.id, end.state, job.attempt, end.outcome, extra=fields
        )
