"""What a program wants to be called for, by the worker that runs its jobs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from forebay import ConfigError, Forebay
from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Discarded
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import LeaseRefusal, SettleAndClaimResult
from tests.domain.sample_jobs import a_job

ERROR = AttemptError(type="Trouble")


@pytest.fixture
def app() -> Forebay:
    return Forebay("memory://")


def test_hooks_start_in_order_and_stop_in_reverse(app: Forebay) -> None:
    calls: list[str] = []
    app.on_start(lambda: calls.append("first up"))
    app.on_stop(lambda: calls.append("first down"))

    @app.on_start
    async def second() -> None:
        calls.append("second up")

    @app.on_stop
    async def last() -> None:
        calls.append("second down")

    app.registry.hooks.start()
    app.registry.hooks.stop()

    assert calls == ["first up", "second up", "second down", "first down"]


def test_an_end_that_was_refused_is_not_told_where_another_attempt_was_settled() -> None:
    """A worker that has lost a lease may be given the next attempt at the same job."""
    job = replace(a_job(), attempt=1)
    later = replace(job, attempt=2)
    heard: list[Any] = []
    hooks = Hooks()
    hooks.on_error.append(lambda *arguments: heard.append(arguments))
    refusal = LeaseRefusal(lease=Lease(job.id, 1), reason="another attempt")

    hooks.report_dead(
        [job, later],
        [decide(job, Discarded(ERROR), 0.0), decide(later, Completed(b"1"), 0.0)],
        SettleAndClaimResult(settled=(job.id,), refused=(refusal,)),
    )

    assert heard == []


def test_a_decorated_hook_is_still_the_function(app: Forebay) -> None:
    def hook() -> int:
        return 7

    assert app.on_start(hook) is hook
    assert app.on_stop(hook) is hook


def test_the_first_start_hook_that_fails_ends_the_start(app: Forebay) -> None:
    calls: list[str] = []

    @app.on_start
    def fail() -> None:
        raise OSError("no model")

    app.on_start(lambda: calls.append("never"))

    with pytest.raises(OSError, match="no model"):
        app.registry.hooks.start()
    assert calls == []


def test_all_stop_hooks_are_called_and_the_first_error_comes_at_the_end(app: Forebay) -> None:
    calls: list[str] = []

    def fail(word: str) -> None:
        calls.append(word)
        raise OSError(word)

    app.on_stop(lambda: fail("registered first"))
    app.on_stop(lambda: calls.append("fine"))
    app.on_stop(lambda: fail("registered last"))

    with pytest.raises(OSError, match="registered last"):
        app.registry.hooks.stop()
    assert calls == ["registered last", "fine", "registered first"]


@pytest.mark.parametrize("name", ["on_start", "on_stop", "on_error", "middleware"])
def test_what_cannot_be_called_is_refused(app: Forebay, name: str) -> None:
    with pytest.raises(ConfigError, match="give a function, not 'nothing'"):
        getattr(app, name)("nothing")


@pytest.mark.shows("R-WORK-13")
def test_a_listener_that_fails_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    hooks, heard = Hooks(), list[Any]()

    def fail(*_: object) -> None:
        raise SystemExit("I want to go")

    hooks.on_error += [fail, lambda job, error: heard.append((job, error))]
    hooks.report(None, ERROR)

    assert heard == [(None, ERROR)]
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert "error listener" in line.message
