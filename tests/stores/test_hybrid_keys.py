"""Stores that share a Redis: which keys are whose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import pytest

from forebay.domain.job import QueueName
from forebay.stores.hybrid.engine import HybridEngine
from forebay.stores.postgres.connection import Address
from forebay.stores.protocol import Want
from tests.servers import Postgres
from tests.stores.hybrid_support import beside, hot, keys_of, new_namespace
from tests.stores.postgres_support import new_schema, raw, server
from tests.stores.support import WORKER, new_job

DEADLINE: Final = 60.0
NOBODY: Final = [Want(QueueName("default"), 0, None, frozenset(["task:t"]))]

pytestmark = pytest.mark.usefixtures("patience_with_redis")


@pytest.fixture(scope="module")
def other() -> Iterator[Postgres]:
    """A second server, whose databases have the names of the first one's."""
    started = Postgres(shared_buffers="16MB")
    yield started
    started.close()


def engine_on(dsn: str, schema: str, namespace: str) -> HybridEngine:
    return HybridEngine(Address(dsn=dsn, schema=schema), beside(namespace), is_eager=True)


@pytest.mark.shows("R-STORE-55")
def test_databases_of_one_name_on_two_servers_do_not_mix_their_orders(other: Postgres) -> None:
    schema, namespace = new_schema(), new_namespace()
    one, two = engine_on(server().url(), schema, namespace), engine_on(other.url(), schema, namespace)
    mine, theirs = one.store(), two.store()
    mine.insert([new_job()] * 5)
    theirs.insert([new_job()] * 2)
    for store in (mine, theirs):
        assert store.exchange(WORKER, wants=NOBODY).jobs == ()
        store._link.command("PING")

    assert (len(hot(one)), len(hot(two))) == (5, 2)
    mine.close()
    theirs.close()


def test_databases_of_one_name_on_two_servers_do_not_wake_up_each_others_workers(other: Postgres) -> None:
    schema, namespace = new_schema(), new_namespace()
    one, two = engine_on(server().url(), schema, namespace), engine_on(other.url(), schema, namespace)
    mine, theirs, pokes = one.store(), two.store(), threading.Semaphore(0)
    listener = two.wakeups()
    listener.start(pokes.release)
    for _ in range(2):  # each side says once that it listens
        assert pokes.acquire(timeout=DEADLINE)

    for store in (mine, theirs):
        store.insert([new_job()])
        store._link.command("PING")

    # The second word is on its way behind the first, if that goes there at all.
    assert pokes.acquire(timeout=DEADLINE)
    listener.close()
    assert not pokes.acquire(blocking=False)
    mine.close()
    theirs.close()


@pytest.mark.shows("R-STORE-55")
def test_all_who_use_a_store_have_the_same_keys_by_whatever_address(other: Postgres) -> None:
    schema, namespace = new_schema(), new_namespace()
    port = other.port
    addresses = (
        other.url(),
        f"postgresql://postgres@localhost:{port}/postgres",
        f"host=127.0.0.1 port={port} user=postgres",
    )
    engine_on(other.url(), schema, namespace).store().close()
    with raw(other.url()) as connection:
        [(number,)] = connection.execute("select system_identifier from pg_control_system()").fetchall()

    keys = {keys_of(engine_on(address, schema, namespace)) for address in addresses}

    assert keys == {f"{{{namespace}}}:beside:postgres.{schema}.{number}"}


def test_a_user_without_rights_on_the_server_has_keys_and_so_has_one_who_may_not_read_its_number(
    other: Postgres,
) -> None:
    schema, namespace = new_schema(), new_namespace()
    with raw(other.url()) as connection:
        connection.execute("create role jobs login")
        connection.execute("create database shop owner jobs")
    engine = engine_on(f"postgresql://jobs@127.0.0.1:{other.port}/shop", schema, namespace)
    store = engine.store()
    as_admin = engine_on(other.url("shop"), schema, namespace)
    assert keys_of(engine) == keys_of(as_admin)

    with raw(other.url("shop")) as connection:
        connection.execute("revoke execute on function pg_control_system from public")
        [(age,)] = connection.execute(f"select applied_at from {schema}.schema where number = 1").fetchall()
    refused = engine_on(engine.address.dsn, schema, namespace)

    assert keys_of(refused) == f"{{{namespace}}}:beside:shop.{schema}.{age}"
    refused.store().close()
    store.close()
