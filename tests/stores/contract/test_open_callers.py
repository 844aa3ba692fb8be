"""A caller's open transaction: what it holds up, engine by engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from forebay.domain.job import JobId
from forebay.errors import ConfigError, StoreBusy, StoreLocked
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.stores.contract.steps import UNKNOWN, put, states
from tests.stores.support import new_job

LOCK_WAIT_SECONDS = 0.1


@contextmanager
def open_caller(engine: Engine) -> Iterator[Any]:
    """A connection of a program's own to the database of the jobs, whose transaction is undone at the end."""
    if engine.features.name == "sqlite":
        path = Path(engine.location.removeprefix("sqlite://"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            yield connection
            connection.rollback()
    else:
        with closing(psycopg.connect(engine.address.dsn)) as connection:  # type: ignore[attr-defined]  # of this engine
            yield connection
            connection.rollback()  # a server notices the end of a connection some time after it


def test_an_open_transaction_holds_up_what_needs_it_and_that_has_changed_nothing(
    engine: Engine, store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL: calls that need what it holds are busy. SQLite: it has the one lock of the file, and every
    call that writes finds the store locked. Memory, Redis and services have no transactions to join."""
    if not engine.features.joins_transactions:
        with pytest.raises(ConfigError, match="transaction"):
            engine.insert_tx(object(), [new_job()])
        return
    before = put(store)
    keyed, plain = new_job(unique_key="daily"), new_job(id=JobId("plain"))
    is_sqlite = engine.features.name == "sqlite"
    if is_sqlite:
        monkeypatch.setattr(store._connection, "_lock_timeout", LOCK_WAIT_SECONDS)  # type: ignore[attr-defined]
    with open_caller(engine) as caller:
        engine.insert_tx(caller, [keyed])
        with pytest.raises(StoreLocked if is_sqlite else StoreBusy):
            store.insert([keyed])
        if is_sqlite:
            with pytest.raises(StoreLocked):
                store.insert([plain])
        else:
            assert store.insert([plain])[0].is_new

    assert store.insert([keyed])[0].is_new
    assert states(reader, [before, UNKNOWN]) == ["pending", None]
    assert states(reader, [JobId("plain")]) == [None if is_sqlite else "pending"]
