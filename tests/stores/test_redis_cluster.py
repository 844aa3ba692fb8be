"""What only a cluster does to the Redis engine; the whole contract runs on one, too."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from threading import Event
from types import ModuleType

import pytest

from forebay.stores.factory import open_engine
from tests.stores.support import claim, everything, new_job


@pytest.mark.shows("R-STORE-48", "R-STORE-53")
def test_a_store_is_found_from_every_node(redis: ModuleType) -> None:
    namespace = redis.new_namespace()
    urls = [f"{node.url()}?persistence=none&namespace={namespace}" for node in redis.cluster().nodes]

    for url in urls:
        with closing(open_engine(url).store()) as store:
            store.insert([new_job()])

    with closing(open_engine(urls[0]).reader()) as reader:
        assert len(everything(reader)) == len(urls)


def set_next(first: Event, second: Event) -> None:
    (second if first.is_set() else first).set()


def test_a_wake_up_is_heard_on_every_node(redis: ModuleType) -> None:
    namespace = redis.new_namespace()
    urls = [f"{node.url()}?persistence=none&namespace={namespace}" for node in redis.cluster().nodes]

    with closing(open_engine(urls[0]).store()) as store:
        for url in urls:
            listening, heard = Event(), Event()
            with closing(open_engine(url).wakeups()) as wakeups:
                wakeups.start(partial(set_next, listening, heard))
                assert listening.wait(120)
                store.insert([new_job()])
                assert heard.wait(120)


def test_a_node_that_is_away_is_passed_over(redis: ModuleType) -> None:
    one, *others = [f"127.0.0.1:{node.port}" for node in redis.cluster().nodes]
    url = f"redis://127.0.0.1:1,{one},{','.join(others)}/0?persistence=none&namespace={redis.new_namespace()}"

    with closing(open_engine(url).store()) as store:
        store.insert([new_job()])

        assert len(claim(store)) == 1
