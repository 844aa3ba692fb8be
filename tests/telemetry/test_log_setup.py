"""Log lines as JSON: what is in them, whatever is logged, and how much of which part."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from forebay.app.current_job import set_current_job
from forebay.app.job_context import JobContext
from forebay.app.logging_integration import JobLogFilter
from forebay.errors import ConfigError
from forebay.telemetry.log_setup import (
    JsonFormatter,
    LogConfig,
    component_of,
    current_log_config,
    parse_levels,
)
from tests.domain.sample_jobs import a_job


class Listening(logging.Handler):
    """Keeps lines as a program would write them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.fields = JobLogFilter()
        self.addFilter(self.fields)
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def heard() -> Iterator[Listening]:
    """Hears what loggers below `shop` say."""
    listening, logger = Listening(), logging.getLogger("shop")
    logger.addHandler(listening)
    logger.setLevel(logging.DEBUG)
    yield listening
    logger.removeHandler(listening)
    logger.setLevel(logging.NOTSET)


@pytest.mark.shows("R-CLI-17", "R-MET-56")
def test_a_line_that_a_task_logs_names_its_job_and_correlation_id(heard: Listening) -> None:
    job = a_job(correlation_id="order-7")

    def run() -> None:
        set_current_job(JobContext(job))
        logging.getLogger("shop.mail").warning("no answer from %s", "mx1", extra={"tries": 3})

    copy_context().run(run)

    [line] = heard.lines
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "level": "WARNING",
        "component": "shop.mail",
        "logger": "shop.mail",
        "event": "no answer from %s",
        "message": "no answer from mx1",
        "job_id": job.id,
        "task": "send",
        "queue": "default",
        "attempt": 1,
        "worker_id": "w1",
        "correlation_id": "order-7",
        "tries": 3,
    }


def test_a_line_outside_of_jobs_names_the_worker_of_its_program(heard: Listening) -> None:
    heard.fields.worker_id = "w2"

    copy_context().run(logging.getLogger("shop").info, "open")

    [line] = heard.lines
    assert set(line) == {"timestamp", "level", "component", "logger", "event", "message", "worker_id"}
    assert line["worker_id"] == "w2"


def test_an_exception_is_in_the_line_with_its_trace(heard: Listening) -> None:
    try:
        raise ValueError("too low")
    except ValueError:
        logging.getLogger("shop").exception("oil", stack_info=True)

    [line] = heard.lines
    assert line["error_type"] == "ValueError"
    assert line["traceback"].endswith("ValueError: too low")
    assert line["stack"].startswith("Stack")


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        (sys, repr(sys)),
        (Shy(), "(cannot be shown)"),
        ("half \ud800", "half ?"),
    ],
)
def test_whatever_is_put_on_a_line_it_is_written(value: object, shown: object, heard: Listening) -> None:
    logging.getLogger("shop").info("look", extra={"value": value})

    assert heard.lines[0]["value"] == shown


@pytest.mark.shows("R-CLI-18")
def test_levels_are_set_by_part_or_by_logger() -> None:
    assert parse_levels("warning") == {"": logging.WARNING}
    assert parse_levels("worker=debug, shop.mail = error") == {
        "": logging.INFO,
        "forebay.worker": logging.DEBUG,
        "shop.mail": logging.ERROR,
    }
    assert [component_of(name) for name in ("forebay.worker.lease_renewal", "shop.mail", "forebay")] == [
        *("worker", "shop.mail", "forebay")
    ]


@pytest.mark.parametrize("text", ["loud", "", "info,worker", "worker=", "info;worker=debug"])
def test_a_level_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="log_level takes debug, info, warning or error"):
        parse_levels(text)


def test_another_process_can_log_as_this_one_does(heard: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [heard])

    logs = current_log_config()

    assert logs is not None
    assert logs.format == "json"
    assert logs.levels["shop"] == logging.DEBUG
    assert logs.levels[""] == logging.root.level
    monkeypatch.setattr(logging.root, "handlers", [])
    assert current_log_config() is None


def test_a_program_with_handlers_of_its_own_keeps_them(heard: Listening) -> None:
    before = [*logging.root.handlers]

    LogConfig(format="json", levels={"": logging.ERROR, "shop": logging.WARNING}).set_up()

    assert logging.root.handlers == before
    assert logging.getLogger("shop").level == logging.WARNING
