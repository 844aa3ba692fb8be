"""The page about Redis does what it says, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
import redis as driver

from forebay.errors import StoreUnusable
from forebay.stores.factory import open_engine
from tests.docs.pages import run, text, whole
from tests.redis_server import RedisServer
from tests.stores.support import WORKER, claim, complete, new_job

PAGE = "guide/redis.md"


def plain_block(start: str) -> list[str]:
    """The lines of the one block without a language that begins like this."""
    [block] = [part for part in text(PAGE).split("```")[1::2] if part.startswith(f"\n{start}")]
    return block.strip().splitlines()


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """A server with the settings of the page, whose users no other test uses."""
    settings = dict(line.split(" ", 1) for line in plain_block("appendonly"))
    started = RedisServer(**settings)
    yield started
    started.close()


def test_the_program_of_the_page_runs_against_a_server(own_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(whole(PAGE, "python"))

    answer = run(tmp_path, "jobs.py", REDIS_URL=own_server.url())

    # Nothing is warned of: the settings of the page are all that is asked for.
    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


@pytest.mark.shows("R-STORE-48", "R-SEC-07")
def test_the_rights_of_the_page_are_enough(own_server: RedisServer, redis: ModuleType) -> None:
    """They are what the whole contract is tested with; here is what they do not allow."""
    with driver.Redis(port=own_server.port) as admin:
        admin.execute_command(*redis.rights().split())
    url = own_server.url().replace("127.0.0.1", "jobs:secret@127.0.0.1")
    engine = open_engine(url)

    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.insert([new_job(unique_key="k")])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        store.prune()
        assert reader.health().problems == ()
    with closing(engine.wakeups()) as wakeups:
        heard = Event()
        wakeups.start(heard.set)
        assert heard.wait(120)

    for other in (url + "?namespace=other", url.replace("/0", "/1")):
        with pytest.raises(StoreUnusable, match="does not let this user"):
            open_engine(other).store()
    with driver.Redis(port=own_server.port) as admin:
        admin.execute_command("ACL", "SETUSER", "jobs", "+select")
    open_engine(url.replace("/0", "/1")).store().close()
    with driver.Redis.from_url(url) as user:
        for words in (("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("EVAL", "return 1", "0")):
            with pytest.raises(driver.exceptions.NoPermissionError):
                user.execute_command(*words)
    with pytest.raises(StoreUnusable, match="does not accept this user"):
        open_engine(url.replace("secret", "wrong")).store()
