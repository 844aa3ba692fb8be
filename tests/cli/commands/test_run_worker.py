"""The words of `forebay worker`: what they mean, and what a supervisor tells the processes that it starts."""

from __future__ import annotations

from typing import Any

import click
import pytest

from forebay.cli.commands.run_worker import child_arguments, worker
from forebay.cli.worker_runner import parse_weights
from forebay.errors import ConfigError

OPTIONS = [
    *("jobs:app", "--queues", "mail:3,reports", "--strict", "--threads", "3", "--coroutines", "7"),
    *("--isolated", "2", "--drain-timeout", "9.5", "--heartbeat", "20", "--processes", "2", "--reload"),
    *("--max-jobs", "10", "--max-memory", "150.5", "--max-age", "60"),
    *("--allow-webhooks-to", "10.1.0.0/16,::1", "--secrets-folder", "/run/secrets"),
    *("--log-format", "json", "--log-level", "info,worker=debug"),
]
# A supervisor's own affairs.
OWN = ("processes", "reload", "child")


def context(words: list[str], obj: Any = None) -> click.Context:
    return worker.make_context("worker", words, obj=obj)


def test_every_option_of_a_supervisor_reaches_its_workers() -> None:
    settings = context(OPTIONS)

    assert {name for name, value in settings.params.items() if not value} == {
        "child"
    }  # all of them are tried
    first, *words = child_arguments(settings)

    assert first == "worker"
    heard = context(words).params
    assert {name: heard[name] for name in OWN} == {"processes": None, "reload": False, "child": None}
    assert heard == {**settings.params, **{name: heard[name] for name in OWN}}


def test_what_a_supervisor_is_told_to_leave_out_its_workers_leave_out() -> None:
    settings = context(["jobs:app", "--no-metrics"])

    assert context(child_arguments(settings)[1:]).params["metrics"] is False


def test_options_that_are_not_named_are_the_same_for_its_workers() -> None:
    settings = context(["jobs:app", "--processes", "2"])

    assert context(child_arguments(settings)[1:]).params == {**settings.params, "processes": None}


def test_its_workers_read_their_settings_from_the_same_file() -> None:
    assert child_arguments(context(["jobs:app"], obj="other.toml"))[:3] == [
        "--config",
        "other.toml",
        "worker",
    ]


@pytest.mark.parametrize(
    ("words", "weights"),
    [
        ("mail", {"mail": None}),
        ("mail:3,reports", {"mail": 3, "reports": None}),
        (" mail : 3 , reports:10", {"mail": 3, "reports": 10}),
    ],
)
def test_queues_may_have_weights(words: str, weights: dict[str, int | None]) -> None:
    assert parse_weights(words) == weights
    assert list(parse_weights(words)) == list(weights)  # their order counts with --strict


@pytest.mark.parametrize("words", ["mail:", "mail:much", "mail:-1", "mail:1.5", "mail:3:4"])
def test_a_weight_that_is_no_number_is_refused(words: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a queue with a weight: write mail:3,reports:1"):
        parse_weights(words)
