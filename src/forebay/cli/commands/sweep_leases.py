"""`forebay sweep`: run the sweep by hand that every worker runs once a second."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import click

from forebay.cli.options import with_store
from forebay.cli.output import Output, format_job_count
from forebay.cli.store_session import StoreSession
from forebay.clock import SystemClock
from forebay.domain.job import WorkerId
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.operations.lease_sweep import sweep as sweep_once
from forebay.stores.id_generator import new_worker_id
from forebay.telemetry.observers import SettledAttempt


@click.command()
@click.option("--dead-workers", is_flag=True, help="Only jobs of workers that are known to be dead.")
@click.option("--now", "at_once", is_flag=True, help="Do not wait for workers that may still renew.")
@with_store()
def sweep(session: StoreSession, out: Output, dead_workers: bool, at_once: bool) -> None:
    """Settle attempts whose worker is dead or whose lease has expired.

    Each job is retried or goes to the dead letters, by its retry policy. Workers do this once a second.

    The command waits for twelve seconds first: after an outage, or a step of the store's clock, live workers
    renew their leases in this time. With --now it does not wait, and takes jobs from such workers.
    --dead-workers never waits.
    """
    sweeper = new_worker_id()
    if dead_workers or at_once:
        swept, is_over = 0, False
        while not is_over:
            batch = sweep_once(session.store, sweeper, random.random, only_dead=dead_workers)
            swept, is_over = swept + batch, batch == 0
    else:
        swept = _sweep_after_hold_back(session, sweeper)
    out.print_message({"swept": swept}, f"{format_job_count(swept)} swept")


def _sweep_after_hold_back(session: StoreSession, sweeper: WorkerId) -> int:
    """Sweep like a worker that has just started: hold back first, longer if the clock steps meanwhile."""
    settled: list[SettledAttempt] = []

    def count(ends: Sequence[SettledAttempt]) -> None:
        settled.extend(ends)

    sweeper_task = Sweeper(sweeper=sweeper, clock=SystemClock(), roll=random.random, on_settled=count)
    sweeper_task.run(session.store)
    while sweeper_task.quiet_seconds:
        time.sleep(sweeper_task.quiet_seconds)
        while sweeper_task.run(session.store):
            pass
    return len(settled)
