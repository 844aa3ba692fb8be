"""From a URL to an engine, or to an error that says what to write instead."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.errors import ConfigError, StoreUnusable
from forebay.stores.factory import open_engine
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.url_redaction import redact_url
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import everything, new_job


def test_memory_gives_a_new_engine_each_time(clock: ManualClock) -> None:
    one, other = open_engine("memory://", clock=clock), open_engine("memory://", clock=clock)

    one.store().insert([new_job()])

    assert one.features.name == "memory"
    assert everything(other.reader()) == []


def test_an_engine_uses_the_clock_it_was_given(clock: ManualClock) -> None:
    assert open_engine("memory://", clock=clock).reader().now() == clock.now_ms()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///here/jobs.db", "here/jobs.db"),
        ("sqlite:////{root}/jobs.db", "{root}/jobs.db"),
        ("sqlite:///with%20space%23.db", "with space#.db"),
        ("sqlite:///jobs.db?durability=relaxed", "jobs.db"),
        ("sqlite:///jobs.db?durability=full&lock_timeout=0.5", "jobs.db"),
    ],
)
@pytest.mark.shows("R-STORE-02")
def test_a_sqlite_url_names_a_file(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    root = str(tmp_path).lstrip("/")
    engine = open_engine(url.format(root=root))

    store = engine.store()
    store.close()

    assert engine.features.name == "sqlite"
    assert (tmp_path / path.format(root=tmp_path)).is_file()


@pytest.mark.shows("R-EXT-04")
def test_there_are_these_engines_and_no_brokers() -> None:
    urls = ("memory://", "sqlite:///jobs.db", "postgresql://host/jobs", "redis://host/0")

    assert [open_engine(url).features.name for url in urls] == ["memory", "sqlite", "postgresql", "redis"]
    for url in ("kafka://host", "amqp://host"):
        with pytest.raises(ConfigError, match="names no store that Forebay knows"):
            open_engine(url)


@pytest.mark.shows("R-CFG-41")
def test_how_long_an_answer_is_waited_for_is_up_to_the_address() -> None:
    postgres = [open_engine(f"postgresql://host/jobs{rest}") for rest in ("", "?response_timeout=4")]
    redis = [open_engine(f"redis://host/0{rest}") for rest in ("", "?response_timeout=2.5")]

    assert [engine.address.response_timeout for engine in postgres if isinstance(engine, PostgresEngine)] == [
        35,
        4,
    ]
    assert [engine.address.response_timeout for engine in redis if isinstance(engine, RedisEngine)] == [
        30,
        2.5,
    ]


def test_naming_a_file_does_not_open_it(tmp_path: Path) -> None:
    open_engine(f"sqlite:///{tmp_path}/jobs.db")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "memory://, sqlite:///"),
        ("jobs.db", "memory://, sqlite:///"),
        ("mysql://host/db", "memory://, sqlite:///"),
        ("sqlite", "memory://, sqlite:///"),
        ("http://[broken", "memory://, sqlite:///"),
        ("memory://host", "write memory://"),
        ("memory:///path", "write memory://"),
        ("memory://?durability=full", "unknown option durability; known are: none"),
        ("sqlite://", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///folder/", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite://folder/jobs.db", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:jobs.db", "lacks // behind sqlite:; write sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:/jobs.db", "lacks // behind sqlite:; write sqlite:///relative.db or sqlite:////absolute.db"),
        ("SQLite:jobs.db", "lacks // behind sqlite:"),
        ("sqlite:", "lacks // behind sqlite:"),
        ("sqlite:////", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///.", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///folder/..", "sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///:memory:", "write memory://"),
        ("sqlite:///~/jobs.db", "write the whole path"),
        ("sqlite:///jobs.db ", "a space at its end"),
        (" sqlite:///jobs.db", "a space at its end"),
        ("sqlite:///jobs.db\n", "a space at its end"),
        ("sqlite:///jo\nbs.db", "a sign that cannot be shown"),
        ("memory:", "write memory://"),
        ("memory:x", "write memory://"),
        ("postgresql:jobs", "lacks // behind postgresql:; write postgresql://user@host/database"),
        ("postgres:/jobs", "lacks // behind postgres:; write postgresql://user@host/database"),
        ("redis:host", "lacks // behind redis:; write redis://user:password@host:6379/0"),
        ("valkey:", "lacks // behind valkey:; write valkey://user:password@host:6379/0"),
        ("redis+sentinel:host", "write redis+sentinel://host:26379/master/0"),
        ("unix:/run/redis.sock", "write unix:///run/redis.sock?db=0"),
        ("unix://", "names no socket; write unix:///run/redis.sock?db=0"),
        ("unix://run/redis.sock", "names no socket; write unix:///run/redis.sock?db=0"),
        ("unix:///run/", "names no socket; write unix:///run/redis.sock?db=0"),
        ("http:host", "lacks // behind http:; write https://host:8080"),
        ("https:host:8443", "lacks // behind https:; write https://host:8080"),
        ("sqlite:///jobs.db?timeout=3", "unknown option timeout; known are: durability, lock_timeout"),
        ("sqlite:///jobs.db?durability=some", "one of default, relaxed, full"),
        ("sqlite:///jobs.db?durability=", "one of default, relaxed, full"),
        ("sqlite:///jobs.db?lock_timeout=soon", "seconds from 0 to 3600"),
        ("sqlite:///jobs.db?lock_timeout=-1", "seconds from 0 to 3600"),
        ("sqlite:///jobs.db?lock_timeout=nan", "seconds from 0 to 3600"),
        ("sqlite:///jobs.db?lock_timeout=inf", "seconds from 0 to 3600"),
        ("sqlite:///jobs.db?lock_timeout=1&lock_timeout=2", "given twice"),
        ("sqlite:///jobs.db#part", "%23"),
        (
            "postgresql://host/jobs?response_timeout=0",
            "response_timeout must be a number of seconds from 1 to 3600",
        ),
        (
            "redis://host/0?response_timeout=soon",
            "response_timeout must be a number of seconds from 1 to 3600",
        ),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_the_way_out(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_engine(url)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    "options", ["redis={}", "schema=s&redis={}", "redis=", "redis={}&redis={}", "redis={}&hot=500"]
)
def test_redis_next_to_postgresql_is_refused_before_anything_connects(options: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host = f"127.0.0.1:{server.getsockname()[1]}"
        redis = f"redis://me:word@{host}/0"

        with pytest.raises(ConfigError) as refused:
            open_engine(f"postgresql://jobs:secret@{host}/shop?{options.format(redis, redis)}")

        with pytest.raises(BlockingIOError):
            server.accept()
    message = str(refused.value)
    assert message.endswith(
        ": a PostgreSQL store takes no redis= parameter; leave it out, PostgreSQL alone does everything, "
        "or use a Redis store, redis://user:password@host:6379/0"
    )
    assert "secret" not in message
    assert "word@127" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://jobs:secret@db:5432/shop?redis=redis://me:word@cache/0&schema=s",
            "postgresql://jobs:***@db:5432/shop?redis=redis://me:***@cache/0&schema=s",
        ),
        (
            "postgresql://db/shop?redis=redis%3A%2F%2Fme%3Aword%40cache%2F0",
            "postgresql://db/shop?redis=redis://me:***@cache/0",
        ),
        ("postgresql://u:123?redis=x@db/shop", "postgresql://u:***@db/shop"),
        (
            "postgresql://db/shop?password=word&redis=redis://:word@c",
            "postgresql://db/shop?password=***&redis=redis://:***@c",
        ),
    ],
)
def test_the_password_in_a_refused_redis_parameter_is_not_shown(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_an_engine_that_is_not_asked_for_is_not_loaded() -> None:
    script = (
        "import sys; from forebay.stores.factory import open_engine; open_engine('memory://');"
        "print([name for name in ('sqlite3', 'forebay.stores.sqlite.store') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_looking_for_the_schema_creates_nothing(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/jobs #1%.db".replace("#", "%23").replace("1%", "1%25"))

    with pytest.raises(StoreUnusable, match="there is no store at"):
        engine.check_schema()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "jobs #1%.db").touch()
    with pytest.raises(StoreUnusable, match="has no Forebay tables"):
        engine.check_schema()
    assert (tmp_path / "jobs #1%.db").stat().st_size == 0

    engine.store().close()
    engine.check_schema()
    open_engine("memory://").check_schema()


def test_engines_of_one_store_have_one_place(tmp_path: Path) -> None:
    (tmp_path / "linked.db").symlink_to(tmp_path / "jobs.db")
    one = open_engine(f"sqlite:///{tmp_path}/jobs.db")

    assert one.location == open_engine(f"sqlite:///{tmp_path}/linked.db?lock_timeout=5").location
    assert one.location != open_engine(f"sqlite:///{tmp_path}/other.db").location
    assert open_engine("memory://").location != one.location


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///jobs",
        "postgresql:///jobs?host=/var/run/postgresql",
        "postgresql://one:5432,two:5433/jobs?target_session_attrs=read-write",
        "postgresql://me@[::1]:5432/jobs",
        "postgres://me:pa%2Fs%40s@host/jobs",
    ],
)
def test_a_server_may_be_named_as_its_own_tools_do(url: str) -> None:
    assert open_engine(url).features.name == "postgresql"


@pytest.mark.parametrize(
    "url", ["postgresql://me:pa/ss@host/jobs", "postgresql://host:port/jobs", "postgresql:///me:word@host"]
)
def test_a_password_that_is_not_escaped_is_refused_before_a_server_is_asked(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is not the address of a server: write postgresql://.*%2F"):
        open_engine(url)
