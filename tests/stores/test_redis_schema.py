"""A namespace whose layout has outgrown a program that has it open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from forebay.domain.history import Event, EventKind
from forebay.errors import SchemaNewer, SchemaOutdated
from forebay.stores.redis import connection
from forebay.stores.redis.schema import SCHEMA
from forebay.stores.redis.store import RedisEngine
from forebay.testing.clock import ManualClock
from tests.stores.redis_support import admin, make_engine, release
from tests.stores.support import new_job


@pytest.fixture
def engine() -> RedisEngine:
    release()
    return make_engine(ManualClock())


def outgrow(engine: RedisEngine, readable_from: int = SCHEMA + 1) -> None:
    """Write down that a newer program has been here."""
    tag = engine.address.tag
    admin().hset(f"{tag}:schema", mapping={"number": SCHEMA + 1, "readable_from": readable_from})


def let_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SCHEMA_SECONDS", 0.0)


@pytest.mark.shows("R-EXT-15")
def test_an_open_handle_is_refused_once_the_layout_has_outgrown_its_program(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    outgrow(engine)
    let_time_pass(monkeypatch)

    for _ in range(2):  # not only at the first call after it
        for call in (lambda: store.insert([new_job()]), reader.now):
            with pytest.raises(SchemaNewer, match="upgrade this program"):
                call()
    store.close()
    reader.close()


def test_a_handle_that_connects_again_looks_at_the_layout(engine: RedisEngine) -> None:
    store = engine.store()
    store.insert([new_job()])
    outgrow(engine)
    store._connection._let_go()

    with pytest.raises(SchemaNewer, match="upgrade this program"):
        store.insert([new_job()])
    store.close()


@pytest.mark.parametrize("change", [lambda engine: outgrow(engine, SCHEMA), lambda engine: release()])
def test_a_layout_that_bears_the_program_or_was_emptied_is_used(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch, change: Callable[[RedisEngine], None]
) -> None:
    store = engine.store()
    change(engine)
    let_time_pass(monkeypatch)

    assert store.insert([new_job()])[0].is_new
    store.close()


OLD_EVENTS: tuple[tuple[str, list[Any]], ...] = (
    ("3", ["cancel", 1, "j", "mail", False, "ann", "why", False]),
    ("4", ["swept", 1, "j", "mail", 1, "w1", "", False]),
    ("7", ["deleted", 2, "k", "mail", False, "bob", "dead", False]),
    ("9", ["queue", 3, False, "mail", False, "ann", "paused", False]),
    ("10", ["note", 4, False, False, False, "w1", "hello"]),
)


def test_actions_of_an_older_layout_are_in_the_audit_log(engine: RedisEngine) -> None:
    tag, server = engine.address.tag, admin()
    engine.store().close()
    for number, event in OLD_EVENTS:
        server.hset(f"{tag}:events", number, msgspec.msgpack.encode(event))
        server.zadd(f"{tag}:event_order", {number: int(number)})
        server.zadd(f"{tag}:event_times", {number: event[1]})
    server.set(f"{tag}:event_number", 10)
    server.hset(f"{tag}:schema", mapping={"number": 4, "readable_from": 4})
    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.check_schema()
    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.reader()

    store = engine.store()
    reader = engine.reader()

    assert store.migrate() == SCHEMA
    assert [number for number, _ in reader.audit()] == [10, 9, 7, 4, 3]
    assert (reader.unchained(), store.chain_audit()) == (3, 3)
    chained = [(line.number, line.event.who) for line in reader.audit_chain()]
    assert chained == [(3, "ann"), (7, "bob"), (9, "ann")]
    store.record([Event(kind=EventKind.KEY, detail="next"), Event(kind=EventKind.NOTE, detail="last")])
    assert [number for number, _ in reader.audit(limit=2)] == [12, 11]
    assert sorted(map(int, server.hkeys(f"{tag}:events"))) == [3, 4, 10, 12]
    store.close()
    reader.close()


def test_two_chainers_that_look_at_once_append_each_line_once(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, reader = engine.store(), engine.store(), engine.reader()
    first.record([Event(kind=EventKind.KEY, detail=detail) for detail in "ab"])
    real = first._connection.run

    def run(script: str, ask: dict[str, Any]) -> Any:
        if script == "chain_audit":
            assert second.chain_audit(1) == 1  # between the look and the append
        return real(script, ask)

    with monkeypatch.context() as between:
        between.setattr(first._connection, "run", run)
        assert first.chain_audit() == 0

    assert first.chain_audit() == 1
    assert [line.event.detail for line in reader.audit_chain()] == ["a", "b"]
    for handle in (first, second, reader):
        handle.close()
