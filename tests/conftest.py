"""What all tests share: time that moves only when it is told to, and no store but those they make."""

from __future__ import annotations

import os
import signal
import sys
from compileall import compile_dir
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.clocks import FollowedClock

TESTS: Final = Path(__file__).parent
# Every test of these folders and files is left to `make test-all`.
EXTENDED: Final = {
    TESTS / name for name in ("benchmarks", "browser", "deploy", "docs/test_site.py", "evidence", "packaging")
}
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
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        # Tests start hundreds of processes, and one that has to compile the package takes twice as long. By
        # hash, so that what was compiled is never older than its source.
        compile_dir(PACKAGE, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave those folders and files unread in `make test`: they import packages that it does not install."""
    if config.getoption("markexpr") != "not extended":
        return None
    return True if EXTENDED.intersection((collection_path, *collection_path.parents)) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if EXTENDED.intersection((item.path, *item.path.parents)) or _runs_on_another_engine(item):
            item.add_marker(pytest.mark.extended)


def _runs_on_another_engine(item: pytest.Item) -> bool:
    """Return whether the test is marked with `engine(NAME)` and this variant of it runs on another server."""
    marker, callspec = item.get_closest_marker("engine"), getattr(item, "callspec", None)
    if marker is None or callspec is None:
        return False
    return any(name in callspec.id.lower() for name in SERVERS if name != marker.args[0])


@pytest.fixture
def clock() -> FollowedClock:
    return FollowedClock(now_ms=1_800_000_000_000)
