"""Secrets of alert channels are encrypted in a store whose programs have keys."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from forebay import ConfigError, Forebay
from forebay.domain.alert import AlertTransition
from forebay.domain.alert_channel import MASK, MailChannel, WebhookChannel
from forebay.domain.job import ALERT_QUEUE
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.maintenance.alert_delivery import deliver_due
from forebay.operations.alerts.notification_jobs import make_delivery_job
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, CHANNELS
from forebay.payload.engine_wrapper import wrap_engine
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.app.receivers import LOCAL, Calls, served
from tests.security.test_deliveries import ALERT

WORD = "Sup3rSecret"
OLD, NEW = os.urandom(32), os.urandom(32)
HOOK = WebhookChannel(name="ops", url="https://hooks.example.com/T0K3N", secret=WORD)
MAIL = MailChannel(
    name="post", to=("a@example.com",), sender="f@example.com", host="mx", username="u", password=WORD
)


def opened(engine: Engine, keys: Mapping[str, bytes]) -> Engine:
    return wrap_engine(engine, keys)


def stored(reader: Reader) -> dict[str, str]:
    """Documents as they are in the store."""
    return {one.name: one.body for one in reader.documents("alert-channel")}


def kept(engine: Engine) -> dict[str, object]:
    with closing(engine.reader()) as reader:
        return {name: one.value for name, one in CHANNELS.all(reader).items()}


def test_secrets_are_encrypted_on_every_engine(engine: Engine) -> None:
    keyed = opened(engine, {"old": OLD})
    with closing(keyed.store()) as store:
        CHANNELS.save(store, "ops", HOOK)
        CHANNELS.save(store, "post", MAIL)

    with closing(engine.reader()) as reader:
        bodies = stored(reader)
    assert WORD not in str(bodies)
    assert "T0K3N" not in str(bodies)
    assert kept(keyed) == {"ops": HOOK, "post": MAIL}
    # A process without the key still knows whom to tell of which alerts.
    assert kept(engine) == {"ops": HOOK.public_view(), "post": MAIL.public_view()}


def test_the_file_has_no_secret(tmp_path: Path) -> None:
    app = Forebay(f"sqlite:///{tmp_path / 'c.db'}", encryption_keys={"old": OLD})
    app.alerts.save_email(
        "post", ["a@example.com"], sender="f@example.com", host="mx", password=WORD, username="u"
    )
    app.alerts.save_webhook("ops", HOOK.url, secret=WORD)

    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"hooks.example.com" in content
    assert WORD.encode() not in content
    assert b"T0K3N" not in content
    assert app.alerts.channel("ops") == HOOK
    app.close()


def test_what_has_no_secret_stays_readable(engine: Engine) -> None:
    keyed = opened(engine, {"old": OLD})
    plain = MailChannel(name="post", to=("a@example.com",), sender="f@example.com", host="mx")
    reference = "env:FOREBAY_SECRET_MAIL"
    referring = msgspec.structs.replace(plain, name="other", password=reference, username="u")
    with closing(keyed.store()) as store:
        CHANNELS.save(store, "post", plain)
        CHANNELS.save(store, "other", referring)

    assert kept(engine) == {"post": plain, "other": referring}


def test_plain_channels_are_read_and_encrypted_when_they_are_saved_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    before = Forebay(url)
    before.alerts.save_webhook("ops", HOOK.url, secret=WORD)
    app = Forebay(url, encryption_keys={"old": OLD})
    assert app.alerts.channel("ops") == HOOK
    assert WORD in str(before.client.read(stored))

    app.alerts.save_webhook("ops", HOOK.url, secret=WORD)

    assert WORD not in str(before.client.read(stored))
    assert app.alerts.channel("ops") == HOOK
    newest = app.client.read(lambda reader: reader.audit())[0][1]
    assert (newest.detail, dict(newest.changes)) == ("saved channel ops", {})
    app.close()
    before.close()


def test_another_key_takes_over(engine: Engine) -> None:
    first, both, second = (
        opened(engine, keys) for keys in ({"old": OLD}, {"new": NEW, "old": OLD}, {"new": NEW})
    )
    with closing(first.store()) as store:
        CHANNELS.save(store, "ops", HOOK)
    assert kept(both) == {"ops": HOOK}
    assert kept(second) == {"ops": HOOK.public_view()}

    with closing(both.store()) as store, closing(both.reader()) as reader:
        found = CHANNELS.get(reader, "ops")
        assert found is not None
        assert CHANNELS.save(store, "ops", found.value, found.revision)

    assert kept(second) == {"ops": HOOK}
    assert kept(first) == {"ops": HOOK.public_view()}


def test_what_was_moved_or_changed_is_not_decrypted(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    keyed = opened(engine, {"old": OLD})
    with closing(keyed.store()) as store:
        CHANNELS.save(store, "ops", HOOK)
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        [document] = reader.documents("alert-channel")
        store.save_document(msgspec.structs.replace(document, name="theirs", revision=0))
        fields = {**msgspec.json.decode(document.body), "encrypted": "?"}
        body = msgspec.json.encode(fields).decode()
        store.save_document(msgspec.structs.replace(document, name="broken", body=body, revision=0))

    with caplog.at_level(logging.WARNING):
        found = kept(keyed)

    assert found == {"ops": HOOK, "theirs": HOOK.public_view(), "broken": HOOK.public_view()}
    assert "alert-channel theirs cannot be decrypted" in caplog.text
    assert "alert-channel broken cannot be decrypted" in caplog.text


def test_a_delivery_waits_for_a_process_with_the_key(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    engine = open_engine("memory://", clock=clock)
    keyed = opened(engine, {"old": OLD})
    with served(Calls()) as calls:
        channel = WebhookChannel(name="ops", url=f"{calls.url}/T0K3N", secret=WORD)
        with closing(keyed.store()) as store:
            CHANNELS.save(store, "ops", channel)

        with caplog.at_level(logging.WARNING):
            waiting = delivered_without_key(engine)
        clock.advance(seconds=60)
        assert deliver_due(keyed, policy=LOCAL) == 1

        assert [path for path, _, _ in calls.seen] == ["/T0K3N"]
    assert "is encrypted with a key that this process lacks" in caplog.text
    assert waiting is JobState.SCHEDULED


def delivered_without_key(engine: Engine) -> JobState:
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        ALERTS.save(store, ALERT.id, ALERT)
        kept = CHANNELS.get(reader, "ops")
        assert kept is not None
        store.insert([make_delivery_job(ALERT, AlertTransition.FIRED, kept.value)])
        assert deliver_due(engine, policy=LOCAL) == 1
        [line] = reader.search(JobQuery(queues=(ALERT_QUEUE,))).jobs
    return line.state


def test_a_process_without_the_key_cannot_save_masks_over_secrets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    keyed, other = Forebay(url, encryption_keys={"old": OLD}), Forebay(url)
    keyed.alerts.save_webhook("ops", HOOK.url, secret=WORD)
    seen = other.alerts.channel("ops")
    assert seen is not None

    with pytest.raises(ConfigError, match=r"\*\*\* stands for a value that is hidden, or encrypted"):
        other.alerts.save_channel(seen)

    assert keyed.alerts.channel("ops") == HOOK
    assert MASK in str(other.alerts.channels())
    keyed.close()
    other.close()
