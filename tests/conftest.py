"""What all tests share: time that moves only when it is told to, and no store but those they make."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Hashable
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from itertools import cycle, groupby
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from typing import Final

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

from tests.clocks import FollowedClock
from tests.servers import MEMORY
from tests.threads import leave_out_earlier_threads

TESTS: Final = Path(__file__).parent
# Every test of these folders and files is left to `make test-all`.
EXTENDED: Final = frozenset(
    TESTS / name
    for name in (
        *("benchmarks", "browser", "deploy", "docs/test_site.py", "evidence", "packaging"),
        # Whole runs at full load, of what other tests show part by part.
        *(
            "end_to_end/test_four_processes.py",
            "end_to_end/test_soak.py",
            "security/test_others_are_served.py",
        ),
    )
)
# Tests of these folders and files start programs and wait for them, for leases and for restarts. Those of
# tests/service stay in their order: they share a server, which other tests would empty in between.
WAITING: Final = frozenset(
    TESTS / name
    for name in (
        *(
            "cli/commands/test_stats.py",
            "cli/dev",
            "cli/test_alert_delivery_options.py",
            "cli/test_program.py",
        ),
        *("docs", "end_to_end", "house", "importers", "integrations", "security/test_open_endpoints.py"),
        *("security/test_quotas.py", "stores/test_redis_fire.py", "worker"),
    )
)
# Engines that tests/urls.py knows beside SQLite and memory; parts of the ids of parametrized tests.
SERVERS: Final = ("postgres", "redis")
PACKAGE: Final = Path(__file__).parents[1] / "src" / "forebay"
# What would lead a program to a store or a server in use.
FOREIGN: Final = (
    "FOREBAY_URL",
    "FOREBAY_CONFIG",
    "DATABASE_URL",
    "PGHOST",
    "PGHOSTADDR",
    "PGSERVICE",
    "REDIS_URL",
)

# The same examples each time: a change fails by what it does, and not by luck. A busy machine is not a fault.
# `--hypothesis-profile=hunt` looks for new examples.
_PATIENT: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("hunt", _PATIENT)
settings.register_profile("steady", _PATIENT, derandomize=True)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run beside a store in use: tests empty, spoil and kill what they are given."""
    named = [name for name in FOREIGN if name in os.environ]
    if named:
        raise pytest.UsageError(f"tests make their own stores; run them without {', '.join(named)}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it starts in the background ignore it, and so would all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests start hundreds of processes, and one that has to compile the package takes twice as long.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not hasattr(config, "workerinput"):
        _compile_package()
        # A commit to a disk takes half of the time of a test on SQLite. tmp_path of a test that has passed
        # is removed at once.
        if _has_room(MEMORY):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)  # the root of tmp_path
    gc.disable()  # until all tests are collected: a million objects are made, and none is garbage


def _has_room(folder: str) -> bool:
    """Return whether stores and programs of tests can live in this folder; containers often have little."""
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= 2 << 30 and not found.f_flag & os.ST_NOEXEC


def _compile_package() -> None:
    """Compile each module that is not compiled yet, once and not in each process."""
    for path in PACKAGE.rglob("*.py"):
        if not Path(cache_from_source(str(path))).exists():
            # By hash: a file that is changed twice in a second has the same time of change.
            with suppress(OSError):  # sources that are not to be written to
                compile_file(str(path), invalidation_mode=PycInvalidationMode.CHECKED_HASH)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Rewrite the asserts of this process's share of the files for all: else each process rewrites all."""
    number, count = _share(session.config)
    for path in sorted(TESTS.rglob("test_*.py"))[number::count] if count > 1 else ():
        compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(compiled.parent):
            source_hash, code = rewrite._rewrite_test(path, session.config)
            rewrite._write_pyc(session.config.stash[rewrite.assertstate_key], code, source_hash, compiled)


def _share(config: pytest.Config) -> tuple[int, int]:
    """Return the number of this process of the run, and how many there are."""
    worker = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    return int(worker["workerid"].removeprefix("gw")), worker["workercount"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts. The tests that wait need more than half of them; a process
    and its servers take half a gigabyte."""
    return min(3 * _cores(), 9)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave those folders and files unread in `make test`: they import packages that it does not install."""
    if config.getoption("markexpr") != "not extended":
        return None
    return True if _is_below(collection_path, EXTENDED) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        if _is_below(item.path, EXTENDED) or _runs_on_another_engine(item):
            item.add_marker(pytest.mark.extended)
    yield  # `-m` selects
    _, processes = _share(config)
    if processes > 1:
        items[:] = _spread(items, processes)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # collected tests stay to the end: no later collection looks at them
    gc.enable()


def _spread(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Put the tests that wait at the heads of all shares but one for each core.

    xdist gives each process a share of equal size, and half of another's rest when it is done. So there is
    always a process that has something to compute while others wait, and no long test begins at the end.
    """
    waiting = [item for item in items if _is_below(item.path, WAITING)]
    others = [item for item in items if not _is_below(item.path, WAITING)]
    shares: list[list[pytest.Item]] = [[] for _ in range(processes)]
    heads = cycle(shares[: max(processes - _cores(), 1)])
    for _, unit in groupby(waiting, key=_unit):
        next(heads).extend(unit)
    for share in shares:
        missing = max(len(items) // processes - len(share), 0)
        share.extend(others[:missing])
        del others[:missing]
    return [item for share in shares for item in share] + others


def _unit(item: pytest.Item) -> Hashable:
    """Return the same value for tests that use one fixture of their file: they stay together."""
    definitions = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return item.path if any(one[-1].scope == "module" for one in definitions) else item


@cache
def _is_below(path: Path, folders: frozenset[Path]) -> bool:
    return not folders.isdisjoint((path, *path.parents))


def _runs_on_another_engine(item: pytest.Item) -> bool:
    """Return whether the test is marked with `engine(NAME)` and this variant of it runs on another server."""
    marker, callspec = item.get_closest_marker("engine"), getattr(item, "callspec", None)
    if marker is None or callspec is None:
        return False
    return any(name in callspec.id.lower() for name in SERVERS if name != marker.args[0])


@pytest.fixture(autouse=True)
def _own_threads() -> None:
    leave_out_earlier_threads()


@pytest.fixture
def clock() -> FollowedClock:
    return FollowedClock(now_ms=1_800_000_000_000)
