"""How long a search for jobs takes, with a long history: the first page, searches, and totals.

What the job explorer of the dashboard asks for: fifty jobs that fit, and how many fit, twenty times each. A
history of PostgreSQL is written straight into its tables: five days, three busy queues, one that was busy
once, and of tasks, tags and keys some that many jobs have and some that few have. The other engines get
theirs through the store, all of it in the last minutes.

    python -m benchmarks.explorer                       five million finished jobs on PostgreSQL
    python -m benchmarks.explorer --jobs 200000         so many
    python -m benchmarks.explorer --engine sqlite       ten thousand on another engine; redis, memory too

The goal of each is 500 ms, at the longest.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.measurements import Measurement, at_most, machine, parser, show, write
from benchmarks.places import Place, progress
from benchmarks.postgres import DURABLE
from forebay.domain.job import DAY_MS, NewJob, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Cancelled, Completed
from forebay.domain.settlement import decide
from forebay.operations.job_search import count_jobs, search_jobs
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer
from tests.servers import Postgres

PAGE: Final = 50
ROUNDS: Final = 20
PATIENCE_SECONDS: Final = 1.0  # a measure that takes longer has fewer rounds
GOAL_MS: Final = 500
MANY: Final = 5_000_000
SOME: Final = 10_000
BATCH: Final = 500
QUEUES: Final = ("mail", "money", "reports", "once", "rare")
WORKER: Final = WorkerId("w")
NOT_THERE: Final = "no job has ever held this"

# A hundred jobs are of the queue `rare` and the task `shop.audit`; the first tenth of all is of the queue
# `once` and the task `shop.import`. One in a hundred was cancelled, one in ten has tags, another one a key.
FINISHED: Final = """
insert into {s}.finished (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, unique_key, finished_at, reason, payload, result
)
select '1' || lpad(i::text, 25, '0'), i,
  case when i % {few} = 7 then 'rare' when i <= {jobs} / 10 then 'once'
    else (array['mail', 'money', 'reports'])[1 + i % 3] end,
  case when i % {few} = 7 then 'shop.audit' when i <= {jobs} / 10 then 'shop.import'
    else 'shop.task_' || i % 20 end,
  case when i % 100 = 3 then 'cancelled' else 'completed' end, 0,
  case when i % {few} = 5 then '{{"tags":["special"],"idempotency_key":"once-' || i || '"}}'
    when i % 10 = 5 then '{{"tags":["newsletter","customer-' || i % 1000 || '"]}}' end,
  1, 0, 0, t, t, t, t, t, false, 'w', t, case when i % 10 = 1 then 'order-' || i end, t + 100,
  case when i % 100 = 3 then 'not wanted any more' end,
  ('{{"args":["someone' || i || '@example.com",' || i || '],"ref":"' || md5(i::text) || '"}}')::bytea, '1'
from (
  select i, {now} - 60000 - (({jobs} - i) * ({days} * {day} / {jobs}::numeric))::bigint as t
  from generate_series({first}, {last}) i
) as n
"""
DEAD: Final = """
insert into {s}.dead (
  id, seq, queue, task, state, priority, attempt, failures, crashes, created_at, updated_at, ready_at, run_at,
  rank, age_capped, worker, started_at, finished_at, reason, payload
)
select '2' || lpad(i::text, 25, '0'), {jobs} + i, 'money', 'shop.charge', 'dead', 0, 4, 4, 0, t, t, t, t, t,
  false, 'w', t, t, 'ConnectionError: the bank of customer ' || i || ' does not answer',
  '{{"args":[1]}}'::bytea
from (select i, {now} - 60000 as t from generate_series(1, {jobs} / 1000) i) as n
"""


def remember(place: Place, jobs: int) -> None:
    """Let so many have finished within the last days, and some have died."""
    place.make_days()
    for name in QUEUES:
        place.store.save_queue(QueueName(name))
    values = {"jobs": jobs, "few": max(jobs // 100, 1)}
    place.load("finished", FINISHED, 1, jobs, **values)
    place.load("dead", DEAD, 1, 1, **values)
    place.raw.execute(f"select setval('{place.schema}.job_seq', {jobs + jobs // 1_000})")
    for table in ("finished", "dead"):
        place.raw.execute(
            f"insert into {place.schema}.queue_count_deltas (queue, state, jobs)"
            f" select queue, state, count(*) from {place.schema}.{table} group by queue, state"
        )


def live_through(store: Store, jobs: int) -> None:
    """The same through the store, for engines without tables to write to."""
    for name in QUEUES:
        store.save_queue(QueueName(name))
    few = max(jobs // 100, 1)
    for first in range(1, jobs + 1, BATCH):
        numbers = range(first, min(first + BATCH, jobs + 1))
        store.insert([new_job(number, jobs, few) for number in numbers])
        claims = [QueueClaim(QueueName(name), BATCH) for name in QUEUES]
        claimed = store.settle_and_claim(WORKER, claims=claims, room=BATCH).jobs
        ends = [
            Cancelled("not wanted any more") if job.seq % 100 == 3 else Completed(b"1") for job in claimed
        ]
        store.settle_and_claim(
            WORKER, [decide(job, end, 0.0) for job, end in zip(claimed, ends, strict=True)]
        )
        progress("finished", numbers[-1], jobs)


def new_job(number: int, jobs: int, few: int) -> NewJob:
    is_rare, is_old = number % few == 7, number <= jobs // 10
    queue = "rare" if is_rare else "once" if is_old else QUEUES[number % 3]
    task = "shop.audit" if is_rare else "shop.import" if is_old else f"shop.task_{number % 20}"
    tags = ("newsletter", f"customer-{number % 1_000}") if number % 10 == 5 else ()
    return NewJob(
        task=task,
        queue=QueueName(queue),
        payload=f'{{"args":["someone{number}@example.com",{number}]}}'.encode(),
        tags=("special",) if number % few == 5 else tags,
        idempotency_key=f"once-{number}" if number % few == 5 else None,
        unique_key=f"order-{number}" if number % 10 == 1 else None,
    )


def questions(now: int, jobs: int) -> Iterator[tuple[str, JobQuery]]:
    """What is asked, and how it is called."""
    few = max(jobs // 100, 1)
    yield "first page", JobQuery()
    yield "a busy queue", JobQuery(queues=(QueueName("money"),))
    yield "a queue that was busy once", JobQuery(queues=(QueueName("once"),))
    yield "a queue with a hundred jobs", JobQuery(queues=(QueueName("rare"),))
    yield "a state: completed", JobQuery(states=(JobState.COMPLETED,))
    yield "a state: cancelled", JobQuery(states=(JobState.CANCELLED,))
    yield "a state: dead", JobQuery(states=(JobState.DEAD,))
    yield "a task", JobQuery(tasks=("shop.task_3",))
    yield "a task of days ago", JobQuery(tasks=("shop.import",))
    yield "a task of a hundred jobs", JobQuery(tasks=("shop.audit",))
    yield "a task that no job has", JobQuery(tasks=("shop.none",))
    yield "a task of a queue", JobQuery(tasks=("shop.task_3",), queues=(QueueName("money"),))
    yield "a tag of one in ten", JobQuery(tags=("newsletter",))
    yield "a tag of one in a thousand", JobQuery(tags=(f"customer-{jobs // 2 % 1_000 // 10 * 10 + 5}",))
    yield "a tag of a hundred jobs", JobQuery(tags=("special",))
    yield "a tag that no job has", JobQuery(tags=("absent",))
    yield "a unique key", JobQuery(unique_key=f"order-{jobs // 20 * 10 + 1}")
    yield "a unique key that no job has", JobQuery(unique_key="order-none")
    yield "an idempotency key", JobQuery(idempotency_key=f"once-{few * 50 + 5}")
    yield "since a quarter of an hour", JobQuery(created_from=now - 900_000)
    yield "since a day", JobQuery(created_from=now - DAY_MS)
    yield "before three days", JobQuery(created_before=now - 3 * DAY_MS)
    yield (
        "an hour three days ago",
        JobQuery(created_from=now - 3 * DAY_MS, created_before=now - 3 * DAY_MS + 3_600_000),
    )
    yield "a text of many", JobQuery(text="@example.com")
    yield "a text of one of the newest", JobQuery(text=f"someone{jobs - min(jobs, 50_000) // 2}@example.com")
    yield "a text of one error", JobQuery(text=f"customer {jobs // 2_000} does", states=(JobState.DEAD,))
    yield "a text that no job has", JobQuery(text=NOT_THERE)
    yield "a text, with a tag of one in ten", JobQuery(text=NOT_THERE, tags=("newsletter",))
    yield "a text, in a queue", JobQuery(text=NOT_THERE, queues=(QueueName("money"),))


def searches(reader: Reader, jobs: int) -> Iterator[Measurement]:
    for name, query in questions(reader.now(), jobs):
        progress(name[:9], 1, 1)
        yield measurement(name, lambda query=query: page_words(reader, query))  # type: ignore[misc]
        yield measurement(f"  how many: {name}", lambda query=query: total_words(reader, query))  # type: ignore[misc]


def page_words(reader: Reader, query: JobQuery) -> str:
    page = search_jobs(reader, query, PAGE, None)
    return f"{len(page.jobs)}{'' if page.after is None else ', goes on'}"


def total_words(reader: Reader, query: JobQuery) -> str:
    count, is_exact = count_jobs(reader, query)
    return f"{'' if is_exact else 'more than '}{count:,}"


def measurement(name: str, ask: Callable[[], str]) -> Measurement:
    times: list[float] = []
    answer = ""
    while len(times) < ROUNDS and sum(times) < PATIENCE_SECONDS:
        began = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - began)
    longest = max(times) * 1e3
    against = f"max {longest:,.0f} ms: {answer}"
    return Measurement(name, median(times) * 1e3, " ms", against, None, (at_most(longest, GOAL_MS, " ms"),))


def filled(engine: str, jobs: int, kept: ExitStack) -> Reader:
    """A store with a history, and who looks at it."""
    if engine == "postgres":
        server = Postgres(**DURABLE)
        kept.callback(server.close)
        place = Place(server.url(), "bench_explorer")
        kept.callback(place.close)
        remember(place, jobs)
        return open_engine(place.url).reader()
    url = f"sqlite:///{Path(kept.enter_context(tempfile.TemporaryDirectory()))}/jobs.db"
    if engine == "redis":
        redis = RedisServer()
        kept.callback(redis.close)
        url = redis.url()
    opened = open_engine("memory://" if engine == "memory" else url)
    store = opened.store()
    kept.callback(store.close)
    live_through(store, jobs)
    return opened.reader()


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--engine", choices=("postgres", "sqlite", "redis", "memory"), default="postgres")
    arguments.add_argument("--jobs", type=int, help="how many have finished (5,000,000, or 10,000)")
    options = arguments.parse_args()
    jobs = options.jobs or (MANY if options.engine == "postgres" else SOME)
    if options.quick:
        jobs //= 10
    before = machine()
    with ExitStack() as kept:
        reader = filled(options.engine, jobs, kept)
        kept.callback(reader.close)
        measurements = list(searches(reader, jobs))
    show(f"Looking for jobs among {jobs:,} on {options.engine}", measurements)
    write(options.json, before, measurements)
    return 0


if __name__ == "__main__":
    sys.exit(main())
