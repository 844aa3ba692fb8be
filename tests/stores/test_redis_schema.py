"""A namespace whose layout has outgrown a program that has it open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.errors import SchemaNewer
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
