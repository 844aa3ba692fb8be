"""`forebay sweep`: what every worker does once a second, by hand."""

from __future__ import annotations

import random

import click

from forebay.app.bulk import sweep as swept_once
from forebay.cli.opening import Desk
from forebay.cli.options import at_store
from forebay.cli.output import Output, jobs_of
from forebay.stores.ids import new_worker_id


@click.command()
@click.option("--dead-workers", is_flag=True, help="Only the jobs of workers that are known to be dead.")
@at_store()
def sweep(desk: Desk, out: Output, dead_workers: bool) -> None:
    """Settle attempts whose worker is dead or whose lease has ended.

    Each job is tried again or goes to the dead letters, as its retry policy says. Workers do this once a
    second by themselves. After an outage of the store wait for a third of a lease, so that workers that were
    cut off can renew first; --dead-workers can be used at any time.
    """
    sweeper, swept, is_over = new_worker_id(), 0, False
    while not is_over:
        batch = swept_once(desk.store, sweeper, random.random, only_dead=dead_workers)
        swept, is_over = swept + batch, batch == 0
    out.say({"swept": swept}, f"{jobs_of(swept)} swept")
