"""Log lines of the coordinator at debug level."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from forebay.domain.job import Job
from forebay.domain.settlement import Settlement
from forebay.telemetry.log_fields import job_fields
from forebay.worker.queue_selector import QueueSelector

logger: logging.Logger = logging.getLogger(__name__)


def log_claims(selector: QueueSelector, jobs: Sequence[Job]) -> None:
    """Log which queues were claimed from, why in this order and for so many, and the jobs claimed."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    for queue, reason in selector.reasons():
        logger.debug("queue %s: %s", queue, reason, extra={"queue": queue})
    for job in jobs:
        logger.debug("job %s is running now, attempt %s", job.id, job.attempt, extra=job_fields(job))


def log_ends(settled: Iterable[tuple[Job, Settlement, float | None]]) -> None:
    """Log the outcomes of attempts, once they are written."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    for job, settlement, seconds in settled:
        fields = {
            **job_fields(job),
            "state": settlement.state,
            "outcome": settlement.outcome,
            "seconds": seconds,
        }
        logger.debug(
            "job %s is %s now, attempt %s: %s",
            job.id,
            settlement.state,
            job.attempt,
            settlement.outcome,
            extra=fields,
        )
