"""Parents of a join that end by the common settle-and-claim tell it so in the transaction that ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Discarded
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.settle_and_claim_fast import SLOW_PATH_CALLS
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import BOOM
from tests.stores.postgres_support import make_engine, problems, program, raw, wait_for_a_lock
from tests.stores.sqlite_support import in_thread, probe
from tests.stores.support import WORKER, claim, complete, new_job

DEFAULT: Final = QueueName("default")
MAIL: Final = QueueName("mail")
JOINS: Final = 40
COMPLETED, BLOCKED, PENDING = JobState.COMPLETED, JobState.BLOCKED, JobState.PENDING


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    """A handle that expects dependants of what it ends: its last settle-and-claim had some."""
    store = engine.store()
    put(store, new_job(), new_job(depends_on=dependencies_of([1])))
    for _ in range(2):
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)], [QueueClaim(DEFAULT, 0)], 0)
        store._fast_path._had_dependants = True
    yield store
    store.close()


def put(store: PostgresStore, *jobs: NewJob) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert(jobs)]


def put_join(store: PostgresStore, parents: int, **changes: Any) -> tuple[list[JobId], JobId]:
    """Parents, and a job that depends on all of them."""
    *ids, join = put(
        store, *[new_job(**changes)] * parents, new_job(depends_on=dependencies_of(range(parents, 0, -1)))
    )
    return ids, join


def end(store: PostgresStore, jobs: Sequence[Job]) -> SettleAndClaimResult:
    """End jobs by the common settle-and-claim."""
    return store.settle_and_claim(WORKER, [complete(job) for job in jobs], [QueueClaim(DEFAULT, 0)], 0)


def states(engine: PostgresEngine, *ids: JobId) -> list[JobState | None]:
    reader = engine.reader()
    found = [None if job is None else job.state for job in reader.jobs(ids)]
    reader.close()
    return found


def one(engine: PostgresEngine, question: str) -> Any:
    with raw() as connection:
        [(answer,)] = connection.execute(question.format(s=engine.address.schema)).fetchall()
    return answer


def lines_ever(engine: PostgresEngine) -> int:
    return int(one(engine, "select pg_sequence_last_value('{s}.dependency_outbox_id_seq'::regclass)"))


def unmet(engine: PostgresEngine) -> int:
    return int(one(engine, "select unmet from {s}.blocked"))


def never(*_: object, **__: object) -> None:
    raise AssertionError("this way should not be taken")


@pytest.mark.shows("R-DEP-11")
def test_parents_of_a_join_that_waits_for_more_put_nothing_on_the_list(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, join = put_join(store, 6)
    before = lines_ever(engine)
    jobs = claim(store, 6)
    with monkeypatch.context() as patched:
        patched.setattr(store, "_propagate", never)
        end(store, jobs[:2])
        end(store, jobs[2:5])

    assert (lines_ever(engine), unmet(engine), states(engine, join)) == (before, 1, [BLOCKED])
    monkeypatch.setattr("forebay.stores.postgres.store.settle_and_claim", never)  # the slow path
    end(store, jobs[5:])
    assert lines_ever(engine) == before + 1
    assert [job.id for job in claim(store, 9)] == [join]


def test_jobs_without_dependants_go_by_one_statement_again(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, *[new_job()] * 2)
    first, second = claim(store, 2)
    end(store, [first])
    monkeypatch.setattr(store._fast_path, "_execute_with_dependencies", never)

    assert end(store, [second]).settled == (second.id,)


@pytest.mark.shows("R-DEP-11")
def test_a_child_that_is_inserted_while_its_parent_ends_hears_of_it(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """Its producer holds the parent; the end waits for that, and looks for edges in a later statement."""
    *_, parent = put(store, new_job(queue=MAIL), new_job())
    [other] = claim(store, queue=MAIL)
    jobs = claim(store)
    producer = engine.store()

    def insert(tx: Transaction) -> tuple[JobId, Callable[[], SettleAndClaimResult]]:
        child = new_job(depends_on=dependencies_of([parent, other.id]))
        [receipt] = insert_all(tx, [child], InsertRules(), atomic=True)
        settling = in_thread(lambda: end(store, jobs))
        wait_for_a_lock(engine.address.schema)
        return JobId(receipt.id or ""), settling

    child, settling = producer._write(insert)
    assert settling().settled == (parent,)

    assert (states(engine, child), unmet(engine)) == ([BLOCKED], 1)
    end(store, [other])
    assert [job.id for job in claim(store)] == [child]
    producer.close()


def test_who_has_a_join_in_hand_does_not_hold_up_the_ends_of_its_parents(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents, join = put_join(store, 4)
    jobs = claim(store, 4)
    with raw() as holding, monkeypatch.context() as patched:
        holding.autocommit = False
        holding.execute(f"select 1 from {engine.address.schema}.blocked for update")
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)

        assert set(end(store, jobs[:3]).settled) == set(parents[:3])

        assert states(engine, *parents[:3]) == [COMPLETED] * 3
        holding.rollback()
    assert unmet(engine) == 4
    store.promote()
    assert unmet(engine) == 1
    end(store, jobs[3:])
    assert [job.id for job in claim(store, 9)] == [join]


def test_who_has_found_a_join_in_other_hands_goes_by_the_list_for_a_while(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    _, join = put_join(store, SLOW_PATH_CALLS + 4)
    jobs = claim(store, SLOW_PATH_CALLS + 4)
    schema = engine.address.schema
    with raw() as holding:
        holding.autocommit = False
        holding.execute(f"select 1 from {schema}.blocked for update")
        settling = in_thread(lambda: end(store, jobs[:1]))
        wait_for_a_lock(schema)
        holding.rollback()
    settling()

    before = lines_ever(engine)
    for job in jobs[1:-1]:
        end(store, [job])

    assert lines_ever(engine) == before + SLOW_PATH_CALLS
    end(store, jobs[-1:])
    assert [job.id for job in claim(store, 9)] == [join]


def test_a_join_that_was_in_other_hands_is_met_by_one_statement_afterwards(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_join(store, 4)
    jobs = claim(store, 4)
    schema = engine.address.schema
    monkeypatch.setattr("forebay.stores.postgres.dependency_propagation.propagate", never)
    with raw() as holding:
        holding.autocommit = False
        holding.execute(f"select 1 from {schema}.blocked for update")
        settling = in_thread(lambda: end(store, jobs[:3]))
        wait_for_a_lock(schema)
        holding.rollback()
    settling()

    assert unmet(engine) == 1


@pytest.mark.shows("R-DEP-11")
def test_a_parent_whose_cancelled_child_is_coming_back_is_put_on_the_list(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """Who revives has found the parent alive, so its end waits; who revives later finds it completed."""
    parents, join = put_join(store, 3)
    jobs = claim(store, 3)
    store.cancel([join])
    end(store, jobs[:1])
    store._fast_path._had_dependants = True
    reviving = engine.store()
    schema = engine.address.schema
    with raw() as holding:
        holding.autocommit = False
        holding.execute(f"select 1 from {schema}.finished where id = %s for update", [join])
        revived = in_thread(lambda: reviving.revive([join]))
        wait_for_a_lock(schema)
        ended = in_thread(lambda: end(store, jobs[1:2]))
        wait_for_a_lock(schema, sessions=2)
        holding.commit()
    revived()
    ended()

    assert states(engine, *parents[:2], join) == [COMPLETED, COMPLETED, BLOCKED]
    assert unmet(engine) == 1
    store._fast_path._had_dependants = True
    end(store, jobs[2:])
    assert [job.id for job in claim(store, 9)] == [join]
    reviving.close()


def test_what_the_list_has_to_do_about_a_parent_comes_before_its_end(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has died, was revived before its death was heard of, and completes then."""
    [other] = put(store, new_job(queue=MAIL))
    [parent] = put(store, new_job())
    [child] = put(store, new_job(depends_on=dependencies_of([parent, other], OnFailure.HOLD)))
    [job] = claim(store)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [decide(job, Discarded(BOOM), 0.5)])
        store.revive([parent])
        store._fast_path._had_dependants = True
        end(store, claim(store))
    assert one(engine, "select count(*) from {s}.dependency_outbox where event = 'completed'") == 1

    store.promote()

    assert (states(engine, parent, child), unmet(engine)) == ([COMPLETED, BLOCKED], 1)
    end(store, claim(store, queue=MAIL))
    assert states(engine, child) == [PENDING]


def test_a_parent_with_many_children_that_wait_for_more_tells_them_all(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    [other] = put(store, new_job(queue=MAIL))
    _, *children = put(
        store, new_job(), *(new_job(depends_on=dependencies_of([at, other])) for at in range(1, 21))
    )

    end(store, claim(store))

    assert states(engine, *children) == [BLOCKED] * 20
    end(store, claim(store, queue=MAIL))
    assert states(engine, *children) == [PENDING] * 20


def test_a_parent_in_a_sequence_lets_the_next_one_run(engine: PostgresEngine, store: PostgresStore) -> None:
    [other] = put(store, new_job(queue=MAIL))
    first, second = put(store, *[new_job(sequence="s")] * 2)
    [join] = put(store, new_job(depends_on=dependencies_of([first, other])))

    end(store, claim(store))

    assert states(engine, first, second, join) == [COMPLETED, PENDING, BLOCKED]
    end(store, claim(store, queue=MAIL))
    assert states(engine, join) == [PENDING]


def test_a_child_of_its_callers_transaction_hears_of_its_parent_when_a_sweeper_has_looked(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """Another child has marked the parent, and is told at once."""
    [other] = put(store, new_job(queue=MAIL))
    [parent] = put(store, new_job())
    [child] = put(store, new_job(depends_on=dependencies_of([parent, other])))
    with raw() as caller, caller.transaction():
        [receipt] = engine.insert_tx(caller, [new_job(depends_on=dependencies_of([parent, other]))])
    late = JobId(receipt.id or "")

    end(store, claim(store))
    before = one(engine, "select array_agg(unmet order by seq) from {s}.blocked")
    store.promote()

    assert (before, states(engine, child, late)) == ([1, 2], [BLOCKED] * 2)
    end(store, claim(store, queue=MAIL))
    assert states(engine, child, late) == [PENDING] * 2


def test_a_child_with_two_edges_to_one_parent_hears_of_both(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """The second parent has the key of the first, and so is the first."""
    keyed = new_job(unique_key="k")
    *_, child = put(store, keyed, keyed, new_job(), new_job(depends_on=dependencies_of([3, 2, 1])))
    first, second = claim(store, 2)

    end(store, [first])

    assert (states(engine, child), unmet(engine)) == ([BLOCKED], 1)
    end(store, [second])
    assert [job.id for job in claim(store)] == [child]


# Ends whatever comes, a few at a time, until it is told to stop; then says what it has run.
WORKING: Final = """
import select
worker, store, ran, done = WorkerId(f"w{os.getpid()}"), engine.store(), [], ()
say("works")
while True:
    ends = [decide(one, Completed(), 0.0) for one in done]
    done = store.settle_and_claim(worker, ends, [QueueClaim(DEFAULT, 5)], 5).jobs
    ran += [one.id for one in done]
    if not done and not store.promote() and select.select([sys.stdin], [], [], 0.002)[0]:
        break
store.close()
say(*ran)
"""


@pytest.mark.shows("R-DEP-11", "R-EDGE-50")
def test_joins_whose_parents_end_in_several_processes_while_they_are_inserted_run_once_each(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """Each join depends on parents of which some are ending just now, in batches of two workers, and on some
    that come with it."""
    joins: list[JobId] = []
    last: list[JobId] = []
    with ExitStack() as programs:
        workers = [programs.enter_context(program(WORKING, engine)) for _ in range(2)]
        assert [worker.hear() for worker in workers] == ["works"] * 2
        for _ in range(JOINS):
            join = new_job(depends_on=dependencies_of([*last, 1, 2, 3]))
            *last, late = put(store, *[new_job()] * 3, join)
            joins.append(late)
        probe(lambda: set(states(engine, *joins)) == {COMPLETED}, "a join has not run")
        for worker in workers:
            worker.write_line("stop")
        ran = [job_id for worker in workers for job_id in worker.hear().split()]

    assert len(ran) == len(set(ran)) == 4 * JOINS
    assert set(joins) <= set(ran)
    assert one(engine, "select count(*) from {s}.dependency_outbox") == 0
