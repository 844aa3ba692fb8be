"""`forebay stuck`: jobs that have been running for too long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import click

from forebay.cli.json_format import summary_json
from forebay.cli.options import with_store
from forebay.cli.output import Output, format_duration, print_table
from forebay.cli.store_session import StoreSession
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.stores.contract.reader import Reader

HOUR_MS: Final = 3_600_000


@click.command()
@click.option(
    "--age-hours",
    type=click.FloatRange(0, 1_000_000),
    default=1.0,
    show_default=True,
    help="Running for longer than this.",
)
@with_store()
def stuck(session: StoreSession, out: Output, age_hours: float) -> None:
    """List jobs that have been running for too long."""
    if math.isnan(age_hours):
        raise click.BadParameter("nan is not a number of hours")
    now = session.reader.now()
    found = find_running_longer(session.reader, now, round(age_hours * HOUR_MS))
    rows = [
        (job.id, job.queue, job.task, job.attempt, job.worker, format_duration(now - (job.started_at or now)))
        for job in found
    ]
    out.print_result(
        {"jobs": [summary_json(job) for job in found]},
        lambda: print_table(("id", "queue", "task", "try", "worker", "running for"), rows),
    )


def find_running_longer(reader: Reader, now: int, age_ms: int) -> list[JobSummary]:
    """Return running jobs whose attempt started more than `age_ms` ago, oldest first."""
    found = [
        job for job in iter_running(reader) if job.started_at is not None and now - job.started_at > age_ms
    ]
    return sorted(found, key=lambda job: job.started_at or 0)


def iter_running(reader: Reader) -> Iterator[JobSummary]:
    """Iterate over all running jobs."""
    after, is_over = None, False
    while not is_over:
        page = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=MAX_PAGE, after=after)
        yield from page.jobs
        after, is_over = page.after, page.after is None
