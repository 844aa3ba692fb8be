"""Workers on a broken network: nothing is lost, at most one attempt finishes a job, and no worker stays
idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.proxy import Proxy, Way
from forebay import Forebay, JobHandle
from forebay.domain.job_history import EventKind
from tests.evidence.networks import Network
from tests.evidence.papers import DEADLINE, LEASE_SECONDS, Papers, a_worker
from tests.worker.support import eventually


@pytest.fixture
def proxy(network: Network) -> Proxy:
    return network.proxy()


@pytest.mark.shows("R-EDGE-66", "R-STORE-51")
def test_a_settle_and_claim_that_is_cut_is_made_again_and_each_job_runs_once(
    network: Network, proxy: Proxy, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with Forebay(network.url) as producer, Forebay(network.through(proxy)) as app:
        papers.task(app)
        enqueue = papers.task(producer).enqueue
        with app.run_worker(threads=1):
            cuts = [
                proxy.lose(b"its claim is not told", Way.ANSWERS),
                proxy.lose(b"the end of its end does not arrive", Way.ASKS),
                proxy.lose_answer_to(b"the end of its end is not told"),
            ]
            for name in ("its claim is not told", "its end does not arrive", "its end is not told"):
                job = enqueue(name)
                papers.accepted(job)
                job.wait(DEADLINE)
            papers.check(producer)

    assert [cut.made for cut in cuts] == [1, 1, 1]
    assert papers.starts() == len(cuts)


@pytest.mark.shows("R-EDGE-04", "R-EDGE-56", "R-EDGE-75")
@pytest.mark.parametrize("ways", [(), (Way.ANSWERS,)], ids=["nothing passes", "no answer passes"])
def test_a_worker_that_is_cut_off_alone_is_fenced_and_works_again_afterwards(
    network: Network, proxy: Proxy, ways: tuple[Way, ...], tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with (
        Forebay(network.url) as app,
        a_worker(network.through(proxy), tmp_path, "cut-off"),
    ):
        work = papers.task(app, LEASE_SECONDS)
        job = work.enqueue("hold it")
        papers.accepted(job)
        eventually(lambda: papers.holders(job), DEADLINE)
        proxy.hold(
            *ways
        )  # and what it says meanwhile arrives when another worker has its job, or no server answers
        with a_worker(network.url, tmp_path, "other") as other:
            taken_over(app, papers, job)
            assert {*papers.holders(job)[1:]} == {other.worker}
            papers.let_go("hold it")
            proxy.heal()
            check_late_end_was_refused(job, other.worker)
        alone = work.using(queue="cut-off").enqueue("alone")
        papers.accepted(alone)
        papers.check(app)


def taken_over(app: Forebay, papers: Papers, job: JobHandle[str]) -> None:
    """Wait until a worker has begun a job again. Workers sweep too, but hold back after their start."""
    eventually(lambda: [app.sweep()] and papers.holders(job)[1:], DEADLINE)


def check_late_end_was_refused(job: JobHandle[str], winner: str) -> None:
    record = job.wait(DEADLINE)
    assert record.worker == winner
    eventually(lambda: EventKind.REFUSED in [one.kind for one in job.history().events], DEADLINE)


@pytest.mark.shows("R-EDGE-75")
def test_delays_beyond_the_lease_cost_attempts_and_no_job(
    network: Network, proxy: Proxy, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with Forebay(network.url) as app, a_worker(network.through(proxy), tmp_path, "slow"):
        work = papers.task(app, lease=1)
        job = work.enqueue("hold it")
        papers.accepted(job)
        eventually(lambda: papers.holders(job), DEADLINE)
        # There and back longer than a lease, and less than an answer is waited for.
        proxy.delay(0.75)
        with a_worker(network.url, tmp_path, "other"):
            taken_over(app, papers, job)
            papers.let_go("hold it")
            proxy.heal()
            papers.accepted(work.using(queue="slow").enqueue("afterwards"))
            papers.check(app)


def test_connections_that_are_cut_again_and_again_lose_nothing(
    network: Network, proxy: Proxy, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with Forebay(network.through(proxy)) as app, Forebay(network.url) as producer:
        papers.task(app)
        work = papers.task(producer)
        papers.accepted(*producer.enqueue_many([work.job(str(number)) for number in range(60)]))
        with app.run_worker(threads=2):
            for share in (15, 30, 45):
                eventually(lambda share=share: papers.starts() >= share, DEADLINE)  # type: ignore[misc]
                proxy.cut()
            papers.check(producer)

    assert papers.starts() == 60
