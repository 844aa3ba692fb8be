"""Every test of the contract runs on every engine, and leaves a store without problems behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from forebay.domain.job import JobId
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import counting_ids

MakeEngine = Callable[[], Engine]
ENGINES: Final = ["memory", "sqlite", "postgresql", "redis"]


@pytest.fixture
def ids() -> Callable[[], JobId]:
    """Ids that are the same in each run."""
    return counting_ids()


@pytest.fixture
def postgres() -> Iterator[ModuleType]:
    """What makes stores on the server of the tests, which is started when a test first asks for it."""
    # Imported here, so that the other engines are tested while this one cannot even be loaded.
    support = import_module("tests.stores.postgres_support")
    yield support
    support.release()


@pytest.fixture
def patient_locks(postgres: ModuleType) -> Iterator[None]:
    """Sessions wait for a lock for as long as a test holds it: for tests of what comes after the wait. On a
    machine with much to do the two seconds that users have may be over before the test goes on."""
    with postgres.patient_locks():
        yield


@pytest.fixture
def redis() -> Iterator[ModuleType]:
    """What makes stores on the Redis server of the tests, started when a test first asks for it."""
    support = import_module("tests.stores.redis_support")
    yield support
    support.release()


@pytest.fixture
def remote() -> Iterator[ModuleType]:
    """What makes stores behind a server of the tests, started when a test first asks for it."""
    support = import_module("tests.stores.remote_support")
    yield support
    support.release()


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> MakeEngine:
    """Makes engines that know nothing of each other."""
    return maker(request, clock, tmp_path)


def maker(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> MakeEngine:
    name: str = request.param
    for support in ("postgres", "redis", "remote"):
        if name.startswith(support):
            # Before the stores that are made on it, so that it ends after them.
            request.getfixturevalue(support)
    made = iter(range(1_000))
    return lambda: _made(request, name, clock, tmp_path / f"jobs-{next(made)}.db")


def _made(request: pytest.FixtureRequest, name: str, clock: ManualClock, path: Path) -> Engine:
    engine: Engine
    if name == "memory":
        engine = MemoryEngine(clock=clock)
    elif name.startswith("postgresql"):
        support, is_pooled = request.getfixturevalue("postgres"), name.endswith("pooled")
        engine = support.make_engine(clock, pooled=is_pooled, keeps_sessions=not is_pooled)
    elif name.startswith("redis"):
        is_clustered = name.endswith("cluster")
        engine = request.getfixturevalue("redis").make_engine(clock, is_clustered=is_clustered)
    elif name == "remote":
        engine = request.getfixturevalue("remote").make_engine(clock)
    else:
        sqlite = import_module("forebay.stores.sqlite.engine")
        import_module("tests.stores.sqlite_support").put_empty(path)
        engine = sqlite.SqliteEngine(str(path), clock=clock)
    return engine


@pytest.fixture
def engine(make_engine: MakeEngine) -> Iterator[Engine]:
    engine = make_engine()
    yield engine
    assert problems_left(engine) == ()


def problems_left(engine: Engine) -> tuple[str, ...]:
    if engine.features.name == "postgresql":
        found: tuple[str, ...] = import_module("tests.stores.postgres_support").problems_left(engine)
        return found
    reader = engine.reader()
    try:
        return reader.health().problems
    finally:
        reader.close()


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def other_store(engine: Engine) -> Iterator[Store]:
    """A second handle to write, as another worker has one."""
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def reader(engine: Engine) -> Iterator[Reader]:
    reader = engine.reader()
    yield reader
    reader.close()
