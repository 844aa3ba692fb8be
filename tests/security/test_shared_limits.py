"""A key for one queue takes no more of the limits that all queues share than it was granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope, task_scope
from forebay.domain.job import MAX_COST, NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.errors import Forbidden
from forebay.payload.codec import encode_call
from forebay.stores.contract.claims_and_results import QueueClaim
from tests.security.grants import Guarded, KeyHolder, guarded

MINE, OTHER = QueueName("mine"), QueueName("other")
GRANTS = {
    "everywhere": ["produce", "consume"],
    "admin": ["admin"],
    "tenant": [f"produce:{MINE}", f"consume:{MINE}", f"operate:{MINE}"],
    "operator": [f"operate:{MINE}"],
    "mover": [f"produce:{MINE}", f"operate:{MINE}", f"operate:{OTHER}"],
    "mailer": ["produce", "task:mail.*", "task:report", "limit:tenant=acme", "limit:host=*"],
    "acme": [f"produce:{MINE}", f"consume:{MINE}", "limit:tenant=acme", "limit:region=eu-*"],
}
LIMITS = [
    Limit(scope=GLOBAL, rate=100, burst=200),
    Limit(scope=queue_scope(MINE), rate=100, burst=150),
    Limit(scope=task_scope("slow"), rate=10, burst=20),
    Limit(scope=key_scope("tenant"), rate=10, burst=30),
    Limit(scope=key_scope("region"), concurrency=1),
]


@pytest.fixture(scope="module")
def world() -> Iterator[Guarded]:
    with guarded(GRANTS, (MINE, OTHER)) as found:
        for limit in LIMITS:
            found.store.save_limit(limit)
        yield found


def refused(holder: KeyHolder, **fields: Any) -> list[str]:
    """Why a job is refused by each way there is to make one; nothing where all of them take it."""
    job_fields = {"task": "t", "queue": MINE, **fields}
    refusals = []
    for path, body in (("/v1/jobs", job_fields), ("/v1/jobs/batch", {"jobs": [job_fields]})):
        answer = holder.ask("POST", path, body)
        if answer.status_code != 201:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            refusals.append(answer.json()["detail"])
    try:
        holder.store.insert([NewJob(payload=encode_call((), {}), **job_fields)])
    except Forbidden as exc:
        refusals.append(str(exc))
    assert len(refusals) in (0, 3)
    return list(dict.fromkeys(refusals))


@pytest.mark.shows("R-SEC-13")
@pytest.mark.parametrize(
    ("fields", "most", "scope"),
    [
        ({}, 150, queue_scope(MINE)),
        ({"task": "slow"}, 20, task_scope("slow")),
        ({"limit_keys": {"tenant": "acme"}}, 30, key_scope("tenant")),
    ],
    ids=str,
)
def test_a_job_of_one_queue_costs_at_most_what_its_limits_hold(
    world: Guarded, fields: dict[str, Any], most: int, scope: str
) -> None:
    def refusals(name: str, cost: int) -> list[str]:
        return refused(world[name], cost=cost, **fields)

    assert refusals("acme", most) == []
    [why] = refusals("acme", most + 1)
    assert why == (
        f"acme may not enqueue a job that costs {most + 1}: the limit of {scope} holds {most} tokens, and "
        "more needs the role produce for all queues"
    )
    assert refusals("everywhere", MAX_COST) == []


@pytest.mark.shows("R-SEC-13")
def test_limit_keys_are_those_that_a_key_was_granted(world: Guarded) -> None:
    def is_taken(name: str, **limit_keys: str) -> bool:
        return not refused(world[name], task="mail.x", limit_keys=limit_keys)

    assert is_taken("acme", tenant="acme", region="eu-1")
    assert not is_taken("acme", tenant="victim")
    assert not is_taken("acme", tenant="acme", region="us-1")
    assert not is_taken("acme", host="acme")
    assert not is_taken("tenant", tenant="acme")
    assert is_taken("everywhere", tenant="victim", host="any")
    assert is_taken("mailer", host="any")
    assert not is_taken("mailer", tenant="victim")
    [why] = refused(world["tenant"], limit_keys={"tenant": "acme"})
    assert "an administrator can give another key the grant limit:tenant=acme" in why


@pytest.mark.shows("R-SEC-13")
def test_tasks_are_those_that_a_key_was_granted(world: Guarded) -> None:
    def refusals(name: str, task: str) -> list[str]:
        return refused(world[name], task=task)

    assert refusals("mailer", "mail.send") == refusals("mailer", "report") == []
    [why] = refusals("mailer", "reports")
    assert "may not enqueue 'reports': an administrator can give another key the grant task:reports" in why
    assert refusals("tenant", "anything") == []  # without such a grant of any task


@pytest.mark.shows("R-SEC-13")
def test_a_follow_up_names_what_its_key_was_granted(world: Guarded) -> None:
    worker, store = WorkerId("w1"), world["acme"].store
    store.insert([NewJob(task="t", queue=MINE)])
    [job] = store.settle_and_claim(worker, claims=[QueueClaim(MINE, 1)], room=1).jobs
    victim = NewJob(task="t", queue=MINE, limit_keys={"tenant": "victim"})

    with pytest.raises(Forbidden, match="may not use these limit keys"):
        store.settle_and_claim(worker, [decide(job, Completed(follow_ups=(victim,)), 0)])


@pytest.mark.shows("R-SEC-13")
def test_a_replay_with_other_arguments_needs_what_a_new_job_needs(world: Guarded) -> None:
    """Without arguments a replay runs what a producer has asked for."""

    def code(name: str, job: str, **body: Any) -> int:
        return world[name].ask("POST", f"/v1/jobs/{job}/replay", body).status_code

    args = {"args": [1], "kwargs": {}}
    job = world["everywhere"].enqueue(MINE, task="mail.x")
    assert (code("operator", job), code("operator", job, **args)) == (201, 403)
    assert code("tenant", job, **args) == 201
    assert code("tenant", job, queue=OTHER, **args) == 403
    assert code("mover", job, queue=OTHER) == 201
    assert code("mover", job, queue=OTHER, **args) == 403
    assert code("admin", job, queue=OTHER, **args) == 201
    assert code("admin", "unknown", **args) == 404
    foreign = world["everywhere"].enqueue(MINE, limit_keys={"tenant": "victim"})
    assert (code("tenant", foreign), code("tenant", foreign, **args)) == (201, 403)
