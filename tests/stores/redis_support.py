"""What tests of the Redis engine share: one server for all, namespaces of their own, time at will."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, Final
from unittest.mock import patch

import redis

from forebay.stores.redis import connection
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.key_layout import tag
from forebay.stores.redis.lua_scripts import load_scripts
from forebay.stores.redis.server_address import RedisAddress
from forebay.testing.manual_clock import ManualClock
from tests.clocks import FollowedClock
from tests.docs.pages import text
from tests.redis_cluster import RedisCluster
from tests.redis_server import RedisServer

_numbers: Final = count(1)

# The store's clock as a test sets it, in the place of the server's own; as long as none does, the server's.
CLOCK: Final = """
local function now_ms()
  local set = redis.call('GET', KEYS[1] .. ':test_clock')
  if set then
    return tonumber(set)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""


@cache
def server() -> RedisServer:
    """The server of this test process. Stores use it with the rights that docs/guide/redis.md asks for, and
    no others."""
    started = RedisServer()
    atexit.register(started.close)
    with redis.Redis(port=started.port) as client:
        client.execute_command(*rights().replace("{forebay}", "{test-*}").split())
    return started


def rights() -> str:
    """The command of the page that makes a user."""
    [command] = [line for line in text("guide/redis.md").splitlines() if line.startswith("ACL SETUSER")]
    return command


def user_url() -> str:
    """The address of the server for the user of the page."""
    return server().url().replace("redis://", "redis://jobs:secret@")


@cache
def admin() -> redis.Redis:
    """A client to look behind stores, and to spoil them."""
    client = redis.Redis(port=server().port)
    atexit.register(client.close)
    return client


@cache
def cluster() -> RedisCluster:
    """The cluster of this test process."""
    started = RedisCluster()
    atexit.register(started.close)
    return started


@cache
def cluster_admin() -> redis.RedisCluster:
    client = redis.RedisCluster(host="127.0.0.1", port=cluster().nodes[0].port)
    atexit.register(client.close)
    return client


def new_namespace() -> str:
    return f"test-{next(_numbers)}"


def new_url() -> str:
    """The address of a new store."""
    return f"{user_url()}?persistence=none&namespace={new_namespace()}"


def make_engine(clock: ManualClock, *, is_clustered: bool = False, **options: Any) -> RedisEngine:
    """An engine with a namespace of its own."""
    url = cluster().url if is_clustered else user_url()
    client = cluster_admin() if is_clustered else admin()
    address = RedisAddress(url=url, namespace=new_namespace(), clock=CLOCK, accepts_loss=True)
    if isinstance(clock, FollowedClock):
        clock.add_follower(lambda now_ms: client.set(f"{address.tag}:test_clock", now_ms))
    return RedisEngine(address, **options)


@contextmanager
def lent_url() -> Iterator[str]:
    """The address of an empty store for the time of a test, on the server's own clock until `follow`."""
    with patch.object(connection, "load_scripts", lambda clock: load_scripts(clock or CLOCK)):
        yield new_url()
    release()


def follow(clock: FollowedClock, url: str) -> None:
    """Give the store at an address that `lent_url` has made the time of a test."""
    name = tag(url.rpartition("namespace=")[2])
    clock.add_follower(lambda now_ms: admin().set(f"{name}:test_clock", now_ms))


def release() -> None:
    """Empty the servers after a test."""
    admin().flushdb()
    if cluster.cache_info().currsize:
        cluster_admin().flushall(target_nodes=redis.RedisCluster.PRIMARIES)
