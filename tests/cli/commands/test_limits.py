"""`forebay limits`, and the limits that `forebay queues show` shows."""

from __future__ import annotations

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job_history import EventKind
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, put, refusal


def test_limits_are_set_listed_and_removed(store: Store, reader: Reader) -> None:
    answer("limits", "set", "global", "--concurrency", "9")
    result = answer("limits", "set", "queue:mail", "--rate", "5", "--per", "1m")

    assert result["burst"] == 10
    assert reader.limits() == [
        Limit(scope="global", concurrency=9),
        Limit(scope="queue:mail", rate=5, per_ms=60_000),
    ]
    assert [one["scope"] for one in answer("limits", "list")["limits"]] == ["global", "queue:mail"]
    assert "5 per 60 s, up to 10 together" in call("limits", "list").stdout
    mail = answer("limits", "list")["limits"][1]
    assert (mail["state"], mail["running"], mail["tokens"], mail["waiting"]) == ("open", 0, 10, 0)
    assert answer("limits", "remove", "global") == {"scope": "global", "removed": True}
    assert not answer("limits", "remove", "global")["removed"]
    assert len([1 for _, event in reader.audit() if event.kind is EventKind.LIMIT_CHANGED]) == 3


def test_a_queue_is_shown_with_its_limits(store: Store) -> None:
    put(store)
    answer("limits", "set", "queue:default", "--concurrency", "2", "--rate", "3")

    assert answer("queues", "show", "default")["limits"][0]["concurrency"] == 2
    assert (
        "queue:default 2 at once; 3 per second, up to 6 together" in call("queues", "show", "default").stdout
    )


def test_a_limit_that_makes_no_sense_is_refused(store: Store) -> None:
    assert "needs a concurrency or a rate" in refusal("limits", "set", "global")["message"]
