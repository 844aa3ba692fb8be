"""Each job is stored first and taken out afterwards, whatever comes in between."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.retry_policy import DEFAULT_POLICY, RetryPolicy
from forebay.integrations.importers.importer import Importer, ImportResult
from forebay.integrations.importers.source import (
    ForeignJob,
    FoundJob,
    ImportCandidate,
    SkippedJob,
    make_candidates,
)
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.stores.support import new_job
from tests.urls import ENGINES, lent_url


class Killed(Exception):
    """The import came to an end."""


class Shelf:
    """A source in memory: what is to be found, and what happens at the next removals."""

    system = "shelf"
    default_policy: RetryPolicy = DEFAULT_POLICY
    distinguishes_copies = False

    def __init__(self, *found: ForeignJob | SkippedJob, page: int = 3) -> None:
        self.things: dict[Hashable, ForeignJob | SkippedJob] = dict(enumerate(found))
        self.page = page
        self.dies_at = 0
        self.thieves: set[Hashable] = set()

    def busy(self) -> str:
        return ""

    def count(self) -> int:
        return len(self.things)

    def pages(self) -> Iterator[Sequence[FoundJob]]:
        every = [FoundJob(place, what) for place, what in self.things.items()]
        yield from (every[first : first + self.page] for first in range(0, len(every), self.page))

    def prepare(self, found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
        return make_candidates(found)

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        self.dies_at -= 1
        if self.dies_at == 0:
            raise Killed
        for thief in self.thieves:
            self.things.pop(thief, None)
        return [self.things.pop(place, None) is not None for place in places]

    def close(self) -> None: ...


def waiting(number: int, **changes: object) -> ForeignJob:
    fields = {
        "id": f"old-{number}",
        "key": f"shelf:old-{number}:1",
        "task": "t",
        "queue": "mail",
        "args": (number,),
    }
    return ForeignJob(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with lent_url(str(request.param), tmp_path) as url:
        yield open_engine(url)


@pytest.fixture
def ends(engine: Engine) -> Iterator[tuple[Store, Reader]]:
    with ExitStack() as stack:
        store, reader = engine.store(), engine.reader()
        stack.callback(store.close)
        stack.callback(reader.close)
        yield store, reader


def run(shelf: Shelf, ends: tuple[Store, Reader]) -> ImportResult:
    return Importer(shelf, *ends).run()


def ids(reader: Reader) -> list[str]:
    return sorted(job.id for job in reader.search(JobQuery(), limit=100).jobs)


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_one_that_ends_after_storing_and_before_removing_is_begun_again(
    ends: tuple[Store, Reader], dies_at: int
) -> None:
    shelf = Shelf(*map(waiting, range(8)))
    shelf.dies_at = dies_at
    with pytest.raises(Killed):
        run(shelf, ends)

    done = run(shelf, ends)

    met = 3 if dies_at < 3 else 2
    assert (done.already, done.found, done.agrees) == (met, 8 - 3 * (dies_at - 1), True)
    assert shelf.count() == 0
    assert ids(ends[1]) == [f"old-{number}" for number in range(8)]


def test_what_was_done_and_deleted_meanwhile_does_not_come_again(ends: tuple[Store, Reader]) -> None:
    shelf = Shelf(waiting(1))
    shelf.dies_at = 1
    with pytest.raises(Killed):
        run(shelf, ends)
    ends[0].cancel([JobId("old-1")], "done", actor="ada")
    ends[0].delete([JobId("old-1")], actor="ada")

    done = run(shelf, ends)

    assert (done.stored, done.already, shelf.count(), ids(ends[1])) == (0, 1, 0, [])


def test_an_id_that_another_job_has_is_not_taken_for_the_same_job(ends: tuple[Store, Reader]) -> None:
    ends[0].insert([new_job(id=JobId("old-1"), queue=QueueName("mail"))])
    parent, child = waiting(1), waiting(2, depends_on=("old-1",))

    done = run(Shelf(parent, child, page=1), ends)

    assert (done.stored, done.agrees, len(ids(ends[1]))) == (2, True, 3)
    [edge] = ends[1].parents([JobId("old-2")])
    assert edge.parent not in ("old-1", "old-2")
    again = run(Shelf(parent), ends)
    assert (again.already, len(ids(ends[1]))) == (1, 3)


def test_a_job_that_another_importer_took_there_meanwhile_is_named(ends: tuple[Store, Reader]) -> None:
    shelf = Shelf(waiting(1), waiting(2))
    shelf.thieves = {1}

    done = run(shelf, ends)

    assert (done.contested, done.removed, done.stored, done.agrees) == (("old-2",), 1, 2, False)


def test_what_the_store_refuses_stays_and_comes_when_there_is_room(ends: tuple[Store, Reader]) -> None:
    ends[0].save_queue(QueueName("mail"), {"max_length": 2})
    shelf = Shelf(*map(waiting, range(3)), waiting(3, args=(object(),)), waiting(4, queue="a b"))

    done = run(shelf, ends)

    assert (done.stored, done.remaining, done.agrees) == (2, 3, True)
    why = {left.id: left.reason for left in done.left}
    assert "old-2" in why
    assert why["old-3"].startswith("args[0]")
    assert "cannot name a queue" in why["old-4"]
    ends[0].save_queue(QueueName("mail"), {"max_length": 10})
    assert run(shelf, ends).stored == 1


def test_what_comes_while_it_runs_is_imported_too(ends: tuple[Store, Reader]) -> None:
    shelf = Shelf(*map(waiting, range(4)))

    def report(*_: object) -> None:
        shelf.things.update(waiting_late)
        waiting_late.clear()

    waiting_late: dict[Hashable, ForeignJob | SkippedJob] = {"late": waiting(9)}

    assert Importer(shelf, *ends, report_progress=report).run().found == 5


def test_parents_that_are_not_carried_over_keep_their_children(ends: tuple[Store, Reader]) -> None:
    shelf = Shelf(SkippedJob(id="old-1", queue="mail", reason="odd"), waiting(2, depends_on=("old-1",)))

    for done in (Importer(shelf, *ends).preview(), run(shelf, ends)):
        assert [left.reason for left in done.left] == [
            "odd",
            "it depends on old-1, which was not carried over",
        ]


def test_with_an_app_a_job_gets_what_its_task_takes_from_the_arguments(ends: tuple[Store, Reader]) -> None:
    app = Forebay("memory://")

    @app.task(
        name="t",
        expires=60,
        sequence_by="a",
        limit_by={"account": "a"},
        fairness_by=lambda a: f"of {10 // a}",
    )
    def task(a: int) -> None: ...

    done = Importer(Shelf(waiting(5), waiting(0)), *ends, registry=app.registry).run()

    [job] = ends[1].jobs([JobId("old-5")])
    assert job is not None
    assert job.sequence == "a:5"
    assert job.limit_keys == {"account": "5", "fairness": "of 2"}
    assert job.expires_at is not None
    assert 0 < job.expires_at - job.created_at <= 60_000
    assert [left.reason for left in done.left] == [
        "task t makes no job of it: ZeroDivisionError: integer division or modulo by zero"
    ]


def test_jobs_wait_for_those_they_need(ends: tuple[Store, Reader]) -> None:
    assert run(Shelf(waiting(1), waiting(2, depends_on=("old-1",)), page=1), ends).stored == 2

    [job] = ends[1].jobs([JobId("old-2")])
    assert job is not None
    assert job.state is JobState.BLOCKED
