"""A namespace whose layout has outgrown a program that has it open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forebay.domain.job_history import Event, EventKind
from forebay.errors import SchemaNewer, SchemaOutdated
from forebay.stores.redis import connection
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.schema_setup_and_check import SCHEMA
from forebay.testing.manual_clock import ManualClock
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
    store._connection._disconnect()

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


def test_a_new_namespace_notes_its_layout(engine: RedisEngine) -> None:
    store = engine.store()

    assert store.migrate() == SCHEMA
    found = admin().hgetall(f"{engine.address.tag}:schema")
    assert found == {b"number": b"1", b"readable_from": b"1", b"name": b"baseline"}
    store.close()


@pytest.mark.parametrize("number", range(1, 6))
def test_a_namespace_from_before_the_baseline_is_refused_and_left_alone(
    engine: RedisEngine, number: int
) -> None:
    key, server = f"{engine.address.tag}:schema", admin()
    server.hset(key, mapping={"number": number, "readable_from": number})
    before = server.keys(f"{engine.address.tag}:*")

    for call in (engine.store, engine.reader, engine.check_schema):
        with pytest.raises(SchemaOutdated, match="forebay move --from") as refused:
            call()
        assert engine.location in str(refused.value)
    assert server.hgetall(key) == {b"number": b"%d" % number, b"readable_from": b"%d" % number}
    assert server.keys(f"{engine.address.tag}:*") == before


def test_an_open_handle_is_refused_where_an_unreleased_commit_has_made_the_namespace_anew(
    engine: RedisEngine,
) -> None:
    store = engine.store()
    release()
    admin().hset(f"{engine.address.tag}:schema", mapping={"number": 5, "readable_from": 5})
    store._connection._disconnect()

    with pytest.raises(SchemaOutdated, match="forebay move --from"):
        store.insert([new_job()])
    store.close()


def test_two_chainers_that_look_at_once_append_each_line_once(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, reader = engine.store(), engine.store(), engine.reader()
    first.record_events([Event(kind=EventKind.API_KEY_CHANGED, detail=detail) for detail in "ab"])
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
