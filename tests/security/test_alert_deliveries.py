"""Deliveries of alerts are made, claimed and changed by administrators and the service's own maintenance
tasks alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from forebay.domain.alert import Alert, AlertTransition, Severity
from forebay.domain.alert_channel import WebhookChannel
from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_update import JobUpdate
from forebay.domain.queue import QueueState
from forebay.errors import Forbidden
from forebay.maintenance.alert_delivery import deliver_due
from forebay.operations.alerts.notification_jobs import make_delivery_job
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, CHANNELS
from forebay.operations.alerts.webhook_and_mail_delivery import DELIVERY
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine
from tests.app.receivers import LOCAL, Calls, served
from tests.security.grants import Guarded, KeyHolder, guarded

MINE = QueueName("mine")
GRANTS = {
    "producer": ["produce"],
    "consumer": ["consume"],
    "operator": ["operate"],
    "owner": [f"admin:{ALERT_QUEUE}"],
    "viewer": ["view"],
    "admin": ["admin"],
}
OTHERS = [name for name in GRANTS if name != "admin"]
W1 = WorkerId("w1")
ALERT = Alert(id="01A", severity=Severity.CRITICAL, source="mail", message="Deep", triggered_at=1)
FORGED = NewJob(
    task=ALERT_TASK, queue=ALERT_QUEUE, metadata={"alert": "01A", "step": "resolved", "channel": "ops"}
)


@pytest.fixture(scope="module")
def world() -> Iterator[Guarded]:
    with guarded(GRANTS, (MINE, ALERT_QUEUE)) as found:
        yield found


@pytest.fixture
def waiting(world: Guarded) -> JobId:
    """A delivery that waits."""
    [receipt] = world.store.insert([FORGED])
    assert receipt.id is not None
    return receipt.id


STORE_CALLS: dict[str, Callable[[KeyHolder, JobId], object]] = {
    "insert": lambda holder, _: holder.store.insert([FORGED]),
    "claim": lambda holder, _: holder.store.settle_and_claim(W1, claims=[QueueClaim(ALERT_QUEUE, 1)], room=1),
    "cancel": lambda holder, job_id: holder.store.cancel([job_id]),
    "update": lambda holder, job_id: holder.store.update_job(job_id, JobUpdate(metadata={"step": "fired"})),
    "move": lambda holder, job_id: holder.store.update_job(job_id, JobUpdate(queue=MINE)),
    "revive": lambda holder, job_id: holder.store.revive([job_id]),
    "delete": lambda holder, job_id: holder.store.delete([job_id]),
    "pause": lambda holder, _: holder.store.save_queue(ALERT_QUEUE, state=QueueState.PAUSED),
    "drop": lambda holder, _: holder.store.drop_queue(ALERT_QUEUE),
}
REQUESTS: dict[str, tuple[str, str, dict[str, object]]] = {
    "enqueue": ("POST", "/v1/jobs", {"task": ALERT_TASK, "queue": ALERT_QUEUE}),
    "enqueue many": ("POST", "/v1/jobs/batch", {"jobs": [{"task": ALERT_TASK, "queue": ALERT_QUEUE}]}),
    "claim": ("POST", "/v1/claim", {"queues": [ALERT_QUEUE], "wait_seconds": 0}),
    "cancel": ("POST", "/v1/jobs/{id}/cancel", {}),
    "update": ("PATCH", "/v1/jobs/{id}", {"metadata": {"step": "fired"}}),
    "delete": ("DELETE", "/v1/jobs/{id}", {}),
    "revive": ("POST", "/v1/jobs/{id}/revive", {}),
    "replay": ("POST", "/v1/jobs/{id}/replay", {}),
    "purge": ("POST", f"/v1/queues/{ALERT_QUEUE}/purge", {}),
    "pause": ("POST", f"/v1/queues/{ALERT_QUEUE}/pause", {}),
    "drain": ("POST", f"/v1/queues/{ALERT_QUEUE}/drain", {}),
}


@pytest.mark.shows("R-SEC-13")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("call", STORE_CALLS)
def test_no_call_of_the_store_touches_a_delivery(
    world: Guarded, waiting: JobId, name: str, call: str
) -> None:
    with pytest.raises(Forbidden):
        STORE_CALLS[call](world[name], waiting)


@pytest.mark.shows("R-SEC-13")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_no_request_touches_a_delivery(world: Guarded, waiting: JobId, name: str, request_name: str) -> None:
    method, path, body = REQUESTS[request_name]

    assert world[name].code(method, path.format(id=waiting), body) == (403, "forbidden")


def test_a_refusal_says_which_role_is_needed(world: Guarded) -> None:
    delivered = (
        world["producer"].ask("POST", "/v1/jobs", {"task": ALERT_TASK, "queue": ALERT_QUEUE}).json()["detail"]
    )

    assert delivered == (
        "producer may not enqueue: the queue forebay-alerts is for deliveries of alerts, and that needs the "
        "role admin for all queues"
    )


def test_who_looks_sees_deliveries_and_an_administrator_changes_them(world: Guarded, waiting: JobId) -> None:
    for name in ("viewer", "operator", "admin"):
        assert world[name].code("GET", f"/v1/jobs/{waiting}")[0] == 200
        assert world[name].code("GET", f"/v1/queues/{ALERT_QUEUE}")[0] == 200

    assert world["admin"].code("POST", f"/v1/jobs/{waiting}/cancel", {})[0] == 200
    assert world["admin"].store.insert([FORGED])[0].is_new


def test_jobs_of_other_queues_are_changed_as_before(world: Guarded) -> None:
    job = world["producer"].enqueue(MINE)

    assert world["producer"].code("POST", f"/v1/jobs/{job}/cancel", {})[0] == 200
    assert world["operator"].code("POST", f"/v1/jobs/{job}/revive", {})[0] == 200
    claimed = world["consumer"].store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1)], room=1).jobs
    assert [one.id for one in claimed] == [job]


@pytest.mark.shows("R-ALERT-08")
@pytest.mark.parametrize("is_active", [True, False])
def test_a_step_is_sent_only_of_an_alert_that_is_at_it(is_active: bool) -> None:
    engine = open_engine("memory://")
    store = engine.store()
    with served(Calls()) as calls:
        channel = WebhookChannel(name="ops", url=calls.url)
        ALERTS.save(store, ALERT.id, ALERT if is_active else replace(ALERT, resolved_at=2))
        CHANNELS.save(store, "ops", channel)
        store.insert([make_delivery_job(ALERT, step, channel) for step in AlertTransition])

        assert deliver_due(engine, policy=LOCAL) == 2

        sent = [headers[DELIVERY] for _, headers, _ in calls.seen]
    assert sent == ["01A.fired" if is_active else "01A.resolved"]
    found = engine.reader().search(JobQuery(queues=(ALERT_QUEUE,))).jobs
    assert [job.state for job in found] == ["completed", "completed"]
