"""Searches in a long history: each goes by an index, and finds what going through everything would find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

import psycopg
import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_states import JobState
from forebay.operations.bulk_actions import cancel_matching
from forebay.stores.contract.store import Store
from forebay.stores.postgres import search as search_module
from forebay.stores.postgres.connection import Connection
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.reader import PostgresReader
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.stores.postgres.search import search
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import new_schema, problems, raw, server
from tests.stores.support import WORKER, claim, complete, everything, new_job
from tests.stores.test_postgres_plans import explained, rows_read

JOBS: Final = 30_000
LOOK: Final = 100
MOST_READ: Final = 1_500
NEWEST: Final = 1_700_000_000_000
# One in 3,000 is of another queue and task and has a tag and a key of its own; the first thousand were
# cancelled. Between one job and the next is a second.
FILL: Final = """
insert into {s}.finished (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, started_at, unique_key, finished_at, payload
)
select 'f' || i, i, case when i % 3000 = 7 then 'rare' else 'default' end,
  case when i % 3000 = 7 then 'rare' else 't' end,
  case when i <= 1000 then 'cancelled' else 'completed' end, 0,
  case
    when i % 3000 = 7
      then '{{"tags":["rare"],"idempotency_key":"o' || i || '","correlation_id":"c' || i || '"}}'
    when i % 3 = 0 then '{{"tags":["often"]}}'
  end,
  1, 0, 0, t, t, t, t, t, false, t, case when i % 3000 = 7 then 'k' || i end, t, 'x'
from (select i, {newest} - ({n} - i) * 1000 as t from generate_series(1, {n}) i) as n;
analyze {s}.finished
"""

RARE: Final = {f"f{number}" for number in range(7, JOBS, 3_000)}
LONG_AGO: Final = NEWEST - (JOBS - 5_000) * 1_000
FILTERS: Final[dict[str, tuple[dict[str, Any], set[str]]]] = {
    "queue": ({"queues": (QueueName("rare"),)}, RARE),
    "task": ({"tasks": ("rare",)}, RARE),
    "task and queue": ({"tasks": ("rare",), "queues": (QueueName("default"),)}, set()),
    "state": ({"states": (JobState.CANCELLED,)}, {f"f{number}" for number in range(951, 1_001)}),
    "unique key": ({"unique_key": "k3007"}, {"f3007"}),
    "idempotency key": ({"idempotency_key": "o3007"}, {"f3007"}),
    "correlation id": ({"correlation_id": "c3007"}, {"f3007"}),
    "tag": ({"tags": ("rare",)}, RARE),
    "tag that many have": ({"tags": ("often",)}, {f"f{each}" for each in range(JOBS - 198, JOBS + 1, 3)}),
    "two tags": ({"tags": ("rare", "often")}, set()),
    "time": (
        {"created_from": LONG_AGO, "created_before": LONG_AGO + 10_000},
        {f"f{number}" for number in range(5_000, 5_010)},
    ),
    "last minutes": (
        {"created_from": NEWEST - 30_000},
        {f"f{number}" for number in range(JOBS - 30, JOBS + 1)},
    ),
}


@pytest.fixture(scope="module")
def history() -> Iterator[Connection]:
    schema = new_schema()
    PostgresEngine(PostgresAddress(dsn=server().url(), schema=schema)).store().close()
    with raw() as admin:
        admin.execute(FILL.format(s=schema, n=JOBS, newest=NEWEST).encode())
        connection = Connection(PostgresAddress(dsn=server().url(), schema=schema), reads=True)
        yield connection
        connection.close()
        admin.execute(f"drop schema {schema} cascade")


class Counting:
    """A look that counts the rows which are read for it."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = connection.open()
        self._statements = statements_for(connection.address.schema)
        self.read = 0

    def all(self, name: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        statement = self._statements[name].decode()
        self.read += rows_read(explained(self._session, statement, dict(values or {})))
        self._session.execute("deallocate looked_at")
        return self._session.execute(self._statements[name], values, binary=True).fetchall()


def searched(history: Connection, query: JobQuery, after: int | None) -> tuple[Page, int]:
    """A page of fifty, and how many rows were read for it."""
    look = Counting(history)
    with history.open().transaction():
        page = search(look, query, 50, after)
    return page, look.read


@pytest.mark.shows("R-NFR-14", "R-DASH-14")
@pytest.mark.parametrize("name", FILTERS)
def test_a_search_reads_few_jobs_of_a_long_history(
    history: Connection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(search_module, "ROWS_PER_SCAN", LOOK)
    monkeypatch.setattr(search_module, "MAX_HASHED", 5 * LOOK)
    conditions, right = FILTERS[name]
    query, found, after = JobQuery(**conditions), set[str](), None

    # Of what one in three has, two looks find enough for a page.
    for _ in range(2):
        page, read = searched(history, query, after)
        assert read < MOST_READ
        found |= {str(job.id) for job in page.jobs}
        after = None if page.after is None else int(page.after)
        if after is None or len(found) >= 50:
            break

    assert found == right


def test_an_absent_text_is_looked_for_as_far_as_a_look_goes(
    history: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "ROWS_PER_SCAN", LOOK)

    page, read = searched(history, JobQuery(text="absent"), None)

    assert read < MOST_READ
    assert page.jobs == ()
    assert page.after == str(JOBS - LOOK + 1)
    assert page.scanned_back_to == NEWEST - (LOOK - 1) * 1_000


def test_a_text_with_a_tag_that_many_have_is_looked_for_in_the_same_way(
    history: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "ROWS_PER_SCAN", LOOK)
    monkeypatch.setattr(search_module, "COMMON_HASHED", LOOK // 10)

    often, read = searched(history, JobQuery(text="absent", tags=("often",)), None)
    rare, _ = searched(history, JobQuery(text="absent", tags=("rare",)), None)

    assert read < MOST_READ
    assert (often.jobs, often.after) == ((), str(JOBS - LOOK + 1))
    assert (rare.jobs, rare.after) == ((), None)


# With any length of looks


@pytest.fixture
def engine(postgres: Any, clock: ManualClock, ids: Callable[[], JobId]) -> Iterator[PostgresEngine]:
    engine: PostgresEngine = postgres.make_engine(clock, new_id=ids)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def reader(engine: PostgresEngine) -> Iterator[PostgresReader]:
    reader = engine.reader()
    yield reader
    reader.close()


def fill(store: Store, reader: PostgresReader, clock: ManualClock) -> None:
    """40 jobs, of which a third have completed and some were cancelled, with tags and keys in turns."""
    for number in range(40):
        store.insert(
            [
                new_job(
                    task=f"t{number % 4}",
                    queue=QueueName(f"q{number % 3}"),
                    tags=("a", "b")[: number % 3],
                    idempotency_key=f"o{number}" if number % 5 == 0 else None,
                    unique_key=f"k{number}" if number % 7 == 0 else None,
                )
            ]
        )
        clock.advance(seconds=30)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 20, QueueName("q1"))])
    cancel_matching(store, reader, JobQuery(queues=(QueueName("q2"),), tasks=("t1",)))


@pytest.mark.parametrize("rows", [1, 2, 7, 1_000])
@pytest.mark.parametrize("marked", [0, 3, 1_000])
def test_a_look_at_few_rows_goes_on_until_all_jobs_were_seen(
    engine: PostgresEngine,
    reader: PostgresReader,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    marked: int,
) -> None:
    store = engine.store()
    fill(store, reader, clock)
    questions = [
        JobQuery(),
        JobQuery(queues=(QueueName("q1"),)),
        JobQuery(tasks=("t2",), states=(JobState.COMPLETED,)),
        JobQuery(tags=("a",)),
        JobQuery(tags=("a", "b"), queues=(QueueName("q2"), QueueName("q1"))),
        JobQuery(idempotency_key="o10"),
        JobQuery(unique_key="k14"),
        JobQuery(created_before=clock.now_ms() - 600_000),
    ]
    right = [everything(reader, query) for query in questions]

    monkeypatch.setattr(search_module, "ROWS_PER_SCAN", rows)
    monkeypatch.setattr(search_module, "MAX_HASHED", marked)

    assert [everything(reader, query, limit=4) for query in questions] == right
    store.close()


def test_a_job_with_options_that_cannot_be_read_ends_and_is_listed(
    engine: PostgresEngine, reader: PostgresReader
) -> None:
    store, numbers = engine.store(), count(1)
    for metadata in ({"zero": "a\0b"}, {"plain": "a"}):
        store.insert([new_job(tags=("odd",), metadata=metadata, unique_key=f"k{next(numbers)}")])
    with raw() as admin:
        admin.execute(f"update {engine.address.schema}.jobs set options = '{{\"tags\": [' where seq = 2")

    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 2)])

    assert len(everything(reader)) == 2
    assert len(everything(reader, JobQuery(tags=("odd",)))) == 1
    with raw() as admin:
        admin.execute(f"update {engine.address.schema}.finished set options = null where seq = 2")
    store.close()
