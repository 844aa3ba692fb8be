"""The address of a store on PostgreSQL that Redis accelerates."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forebay.errors import ConfigError
from forebay.stores.hybrid.engine import HOT, HybridEngine
from forebay.stores.opening import open_engine, without_password

BESIDE = "postgresql://jobs:secret@db:5432/shop?"
SENTINEL = "rediss%2Bsentinel://one%2Ctwo/main/1%3Fnamespace%3Dother"


@pytest.mark.parametrize(
    ("options", "redis", "namespace"),
    [
        ("redis=redis://cache:6379/0", "redis://cache:6379/0", "forebay"),
        ("schema=s&redis=valkey://me:word@cache/2", "redis://me:word@cache/2", "forebay"),
        ("redis=redis%3A%2F%2Fme%3Aw%2540rd%40cache%2F0%3Fnamespace%3Dx", "redis://me:w%40rd@cache/0", "x"),
        (f"redis={SENTINEL}", "rediss://one,two/1", "other"),
        ("redis=unix:///run/redis.sock%3Fdb%3D1", "unix:///run/redis.sock?db=1", "forebay"),
    ],
)
def test_redis_is_named_behind_the_address_of_postgresql(options: str, redis: str, namespace: str) -> None:
    engine = open_engine(BESIDE + options)

    assert isinstance(engine, HybridEngine)
    assert (engine.features.name, engine.redis.url, engine.redis.namespace) == (
        "postgresql+redis",
        redis,
        namespace,
    )


def test_it_is_the_same_store_with_and_without_redis() -> None:
    one, other = open_engine(f"{BESIDE}redis=redis://cache"), open_engine("postgresql://db/shop")

    assert one.place == other.place
    assert one.features.joins_transactions


@pytest.mark.shows("R-CFG-36", "R-STORE-62")
def test_redis_holds_a_hundred_thousand_places_unless_the_address_says_otherwise() -> None:
    usual, other = (open_engine(f"{BESIDE}redis=redis://c{more}") for more in ("", "&hot=500"))

    assert isinstance(usual, HybridEngine)
    assert isinstance(other, HybridEngine)
    assert (usual._hot, HOT, other._hot) == (100_000, 100_000, 500)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("redis=", "redis= is the address of a Redis server, as in postgresql://"),
        ("redis=postgresql://cache", "redis= is the address of a Redis server"),
        ("redis=redis://cache:port", "is not the address of a server: write redis://"),
        ("redis=redis://cache%3Fkeep%3D5", "unknown option keep; known are: namespace"),
        ("redis=redis://cache&redis=redis://other", "an option is given twice"),
        ("hot=5", "hot is how much of an order Redis holds, and there is no redis="),
        ("redis=redis://cache&hot=0", "hot must be a number of jobs from 1"),
        ("redis=redis://cache&hot=many", "hot must be a number of jobs from 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(options: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_engine(BESIDE + options)

    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            f"{BESIDE}redis=redis://me:word@cache/0&hot=5",
            "postgresql://jobs:***@db:5432/shop?redis=redis://me:***@cache/0&hot=5",
        ),
        (
            "postgresql://db/shop?redis=redis%3A%2F%2Fme%3Aword%40cache%2F0",
            "postgresql://db/shop?redis=redis://me:***@cache/0",
        ),
        ("postgresql://u:123?redis=x@db/shop", "postgresql://u:***@db/shop"),
        ("postgresql://db/shop?password=word&redis=redis://:word@c", "postgresql://db/shop?password=***&redis=redis://:***@c"),
    ],
)  # fmt: skip
def test_neither_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_driver_of_redis_is_loaded_only_where_it_is_asked_for() -> None:
    words = "import sys; from forebay.stores.opening import open_engine; open_engine('postgresql://db/shop')"

    subprocess.run([sys.executable, "-c", f"{words}; assert 'redis' not in sys.modules"], check=True)
