"""Where commands that deliver alerts may connect to, and where they read secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay import Forebay
from forebay.cli.allowed_alert_address_and_secret_options import delivery_policy
from forebay.cli.settings import read_settings, unknown_variables
from forebay.domain.allowed_alert_addresses_and_secrets import parse_policy
from forebay.errors import ConfigError
from forebay.maintenance.alert_evaluator import AlertEvaluator
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from forebay.worker.worker import Worker
from tests.app.receivers import LOCAL, Calls, served
from tests.cli.command_runner import call
from tests.cli.commands.test_run_server import running
from tests.worker.support import eventually

APP = parse_policy("10.0.0.0/8", "/app")


@pytest.mark.parametrize(
    ("networks", "folder", "expected"),
    [
        (None, None, APP),
        ("127.0.0.1", None, parse_policy("127.0.0.1", "/app")),
        (None, "/run/secrets", parse_policy("10.0.0.0/8", "/run/secrets")),
        ("::1,10.1.0.0/16", "/run/secrets", parse_policy(["::1", "10.1.0.0/16"], "/run/secrets")),
    ],
)
def test_what_a_command_says_goes_before_what_its_app_says(
    networks: str | None, folder: str | None, expected: object
) -> None:
    assert delivery_policy(networks, folder, APP) == expected


def test_a_command_without_an_app_has_the_default() -> None:
    assert delivery_policy(None, None, None) is None
    assert delivery_policy("::1", None, None) == parse_policy("::1")


@pytest.mark.parametrize("command", [("worker", "tasks:app"), ("server", "--url", "sqlite:///jobs.db")])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--allow-webhooks-to", "intranet"), "'intranet' is no network"),
        (("--secrets-folder", "secrets"), "needs an absolute path"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    command: tuple[str, ...], option: tuple[str, str], message: str
) -> None:
    refused = call(*command, *option)

    assert refused.exit_code != 0
    assert message in refused.stderr


def test_settings_may_be_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forebay.toml").write_text('allow_webhooks_to = ["10.1.0.0/16", "::1"]\n')
    assert read_settings().worker_defaults() == {"allow_webhooks_to": "10.1.0.0/16,::1"}
    monkeypatch.setenv("FOREBAY_ALLOW_WEBHOOKS_TO", "10.2.0.0/16")
    assert read_settings().worker_defaults() == {"allow_webhooks_to": "10.2.0.0/16"}


def test_secrets_of_the_environment_do_not_look_like_mistyped_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREBAY_SECRET_OPS", "x")
    monkeypatch.setenv("FOREBAY_SECERT", "x")
    assert unknown_variables() == ["FOREBAY_SECERT"]


def test_a_worker_has_its_policy() -> None:
    worker = Worker(MemoryEngine(), Forebay("memory://").registry, policy=LOCAL)

    [task] = [one for one in worker._create_maintenance_tasks() if isinstance(one, AlertEvaluator)]

    assert task._policy is LOCAL


def test_a_consumer_delivers_by_the_policy_of_its_app() -> None:
    clock = ManualClock()
    app = Forebay("memory://", allow_webhooks_to="127.0.0.0/8", clock=clock)
    with served(Calls()) as calls:
        app.alerts.save_webhook("ops", calls.url)
        app.alerts.trigger("deploy", "Release 7")
        consumer = app.consumer()

        def is_delivered() -> bool:
            clock.advance(seconds=10)
            consumer.claim()
            return bool(calls.seen)

        eventually(is_delivered)
        consumer.close()
    app.close()


def test_a_server_delivers_to_a_network_that_it_allows(tmp_path: Path) -> None:
    app = Forebay(f"sqlite:///{tmp_path / 'jobs.db'}")
    with served(Calls()) as calls, running(tmp_path, "--allow-webhooks-to", "127.0.0.0/8"):
        app.alerts.save_webhook("ops", calls.url)
        app.alerts.trigger("deploy", "Release 7")

        eventually(lambda: bool(calls.seen))
    app.close()


def test_an_app_says_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="'intranet' is no network"):
        Forebay("memory://", allow_webhooks_to="intranet")
    assert Forebay("memory://").delivery_policy is None
    assert Forebay("memory://", allow_webhooks_to=["::1"]).delivery_policy == parse_policy("::1")
