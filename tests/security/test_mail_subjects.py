"""A mail goes out whatever the name of a task brings into its subject."""

from __future__ import annotations

from email import message_from_bytes, policy

import pytest

from forebay.domain.alert import Alert, AlertTransition, Severity
from forebay.domain.alert_channel import MailChannel
from forebay.operations.alerts.webhook_and_mail_delivery import build_mail

CHANNEL = MailChannel(name="ops", to=("ops@example.com",), sender="forebay@example.com", host="mail")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\u2028\u2029"])
def test_line_separators_become_blanks_in_a_subject(separator: str) -> None:
    message = f"task a{separator}Bcc: eve@example.com failed"
    alert = Alert(id="1", severity=Severity.CRITICAL, message=message, source="rule", triggered_at=0)

    sent = message_from_bytes(
        build_mail(CHANNEL, alert, AlertTransition.FIRED).as_bytes(), policy=policy.default
    )

    blanks = " " * len(separator)
    assert sent["Subject"] == f"[CRITICAL] fired: task a{blanks}Bcc: eve@example.com failed"
    assert "Bcc" not in sent
