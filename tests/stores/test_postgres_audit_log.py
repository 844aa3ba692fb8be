"""The chain of the audit log beside transactions that commit at once, or in another order."""

from __future__ import annotations

from contextlib import closing

import pytest

from forebay.domain.job_history import Event, EventKind
from forebay.operations.audit_check import check_audit
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, raw
from tests.stores.sqlite_support import in_thread


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


def act(detail: str) -> list[Event]:
    return [Event(kind=EventKind.API_KEY_CHANGED, actor="ann", detail=detail)]


def test_a_line_that_is_committed_below_one_that_is_chained_joins_behind_it(engine: PostgresEngine) -> None:
    with closing(engine.store()) as store, closing(engine.reader()) as reader, raw() as late:
        with late.transaction():
            late.execute(
                f"insert into {engine.address.schema}.audit (kind, occurred_at, detail)"
                " values ('api_key_changed', 1, 'late')"
            )
            store.record_events(act("early"))
            assert store.chain_audit() == 1
        assert store.chain_audit() == 1

        lines = reader.audit_chain()

        assert [(line.position, line.event.detail) for line in lines] == [(1, "early"), (2, "late")]
        assert lines[1].number < lines[0].number
        assert check_audit(reader).flaw is None


def test_a_second_chainer_leaves_the_chain_and_does_not_wait(engine: PostgresEngine) -> None:
    with closing(engine.store()) as store, raw() as other:
        store.record_events(act("a"))
        with other.transaction():
            other.execute(statements_for(engine.address.schema)["audit_lock"])
            assert store.chain_audit() == 0
        assert store.chain_audit() == 1


def test_actions_and_chainers_at_once_leave_one_sound_chain(engine: PostgresEngine) -> None:
    def write() -> None:
        with closing(engine.store()) as store:
            for number in range(20):
                store.record_events(act(str(number)))
                store.chain_audit(3)

    for answer in [in_thread(write) for _ in range(4)]:
        answer()

    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        while store.chain_audit():
            pass
        found = check_audit(reader)
    assert (found.lines, found.unchained, found.flaw) == (80, 0, None)
