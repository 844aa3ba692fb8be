"""Fixtures for tests of programs that use Forebay; pytest finds them by itself.

A package of its own, so that the start of pytest loads nothing of Forebay: a fixture does, when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from forebay import Forebay
    from forebay.testing import ManualClock, Trial, WorkerStep

# As forebay.testing.WorkerStep has them.
STEPS: Final = ("claimed", "started", "ran", "settled")
STORES: Final = "forebay_stores"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        STORES,
        "on which stores tests with forebay_trial run: memory, sqlite or the addresses of servers",
        type="args",
        default=["memory"],
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stores = metafunc.config.getini(STORES)
    if "forebay_store" not in metafunc.fixturenames or len(stores) < 2:  # noqa: PLR2004 - one needs no name
        return
    marks = metafunc.definition.iter_markers("parametrize")
    if not any("forebay_store" in _argument_names(mark) for mark in marks):
        # By the engine alone: an address may hold a password.
        engines = [store.partition(":")[0] for store in stores]
        metafunc.parametrize("forebay_store", stores, indirect=True, ids=engines)


def _argument_names(mark: pytest.Mark) -> list[str]:
    """Return the names in a mark, in all the forms that pytest allows."""
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.fixture
def forebay_app() -> Forebay:
    """Return the app under test. Override this fixture in your conftest to return your own app."""
    from forebay import Forebay  # noqa: PLC0415 - as the module says

    return Forebay("memory://")


@pytest.fixture
def forebay_clock() -> ManualClock:
    """Return a clock that stands still until `advance` is called; it begins now."""
    from forebay.clock import SystemClock  # noqa: PLC0415
    from forebay.testing import ManualClock  # noqa: PLC0415

    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def forebay_store(request: pytest.FixtureRequest) -> str:
    """Return the store that the test runs on: one run for each store in the setting `forebay_stores`."""
    store: str = getattr(request, "param", None) or request.config.getini(STORES)[0]
    return store


@pytest.fixture
def forebay_url(forebay_store: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of this test's store. A server gets a schema or a namespace of this process."""
    from forebay.testing import trial_url  # noqa: PLC0415

    process = getattr(request.config, "workerinput", {}).get("workerid", "main")
    return trial_url(forebay_store, tmp_path, process)


@pytest.fixture
def forebay_trial(forebay_app: Forebay, forebay_url: str, forebay_clock: ManualClock) -> Iterator[Trial]:
    """Provide the app on an empty store: `drain` runs the jobs, and time passes when the test says so.

    def test_an_order_sends_a_mail(forebay_trial: Trial) -> None:
        order.enqueue(7)
        forebay_trial.drain()
        forebay_trial.assert_enqueued(send_mail, {"to": "ada@example.com"})
    """
    from forebay.testing import Trial  # noqa: PLC0415

    with Trial(forebay_app, forebay_url, clock=forebay_clock) as trial:
        yield trial


@pytest.fixture
def forebay_inline(forebay_app: Forebay, forebay_url: str, forebay_clock: ManualClock) -> Iterator[Trial]:
    """Provide `forebay_trial` with jobs that run as soon as they are enqueued."""
    from forebay.testing import Trial  # noqa: PLC0415

    with Trial(forebay_app, forebay_url, clock=forebay_clock, inline=True) as trial:
        yield trial


@pytest.fixture(params=STEPS)
def forebay_crash_step(request: pytest.FixtureRequest) -> WorkerStep:
    """Run the test once for each step after which a worker may die.

    def test_a_card_is_charged_once(forebay_trial: Trial, forebay_crash_step: WorkerStep) -> None:
        charge.enqueue(7)
        forebay_trial.crash(forebay_crash_step)
        forebay_trial.recover()
        forebay_trial.assert_effects_once("pay")
    """
    from forebay.testing import WorkerStep  # noqa: PLC0415

    return WorkerStep(request.param)
