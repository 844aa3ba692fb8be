"""A key for one queue reaches into no other one: not by what a job names, not by what an answer lists, and
not by a wait that outlasts the key."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import QueueName
from forebay.domain.job_history import ACTIONS, Event, EventKind
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.schema.events import audit_event_view
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import PATIENCE, Holder, Served, serving
from tests.worker.support import eventually

MINE, SEEN, OTHER = "mine", "seen", "other"
GRANTS = {
    "admin": ["admin"],
    "producer": [f"produce:{MINE}", f"view:{SEEN}"],
    "consumer": [f"consume:{MINE}"],
    "operator": [f"operate:{MINE}"],
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    engine = open_engine("memory://")
    with serving(engine, security=ServerSecurity(requires_keys=True)) as found:
        store = engine.store()
        for name in (MINE, SEEN, OTHER):
            store.save_queue(QueueName(name))
        store.close()
        yield found


@pytest.fixture(scope="module")
def keys(served: Served) -> Iterator[ApiKeyAdmin]:
    engine = served.service.pool.engine
    store, reader = engine.store(), engine.reader()
    yield ApiKeyAdmin(store, reader, actor="ann")
    store.close()
    reader.close()


@pytest.fixture(scope="module")
def holders(served: Served, keys: ApiKeyAdmin) -> dict[str, Holder]:
    return {
        name: Holder(served, keys.create(name, [Grant.parse(one) for one in grants]).token)
        for name, grants in GRANTS.items()
    }


@pytest.mark.shows("R-SEC-13")
def test_a_parent_in_a_hidden_queue_is_as_good_as_none(holders: dict[str, Holder]) -> None:
    hidden = holders["admin"].enqueue(OTHER)
    refusals = []
    for parent in (hidden, "unknown"):
        job = {"task": "t", "queue": MINE, "depends_on": [{"id": parent}]}
        for path, body in (("/v1/jobs", job), ("/v1/jobs/batch", {"jobs": [job]})):
            answer = holders["producer"].ask("POST", path, body)
            problem = answer.json()
            refusals.append((answer.status_code, problem["field"], problem["detail"].replace(parent, "ID")))

    assert len(set(refusals)) == 1
    assert refusals[0][:2] == (422, "depends_on")


@pytest.mark.shows("R-SEC-13")
def test_a_job_is_moved_by_a_key_that_may_update_in_both_queues(holders: dict[str, Holder]) -> None:
    mine, other = holders["admin"].enqueue(MINE), holders["admin"].enqueue(OTHER)

    codes = [
        holders[name].code("PATCH", f"/v1/jobs/{job_id}", {"queue": target})[0]
        for name in ("producer", "operator")
        for job_id, target in ((mine, SEEN), (mine, OTHER), (other, MINE), (mine, "none"))
    ]

    assert codes == [*(403, 403, 404, 403), *(403, 403, 404, 403)]
    assert holders["admin"].code("PATCH", f"/v1/jobs/{mine}", {"queue": OTHER})[0] == 200


@pytest.mark.shows("R-SEC-13")
def test_a_job_raises_those_it_waits_for_only_where_its_key_may_update(holders: dict[str, Holder]) -> None:
    admin, producer = holders["admin"], holders["producer"]
    first = admin.enqueue(OTHER, priority=1)
    mine = admin.enqueue(MINE, priority=1, depends_on=[{"id": first}])
    seen = admin.enqueue(SEEN, priority=1)
    needs = [{"id": mine}, {"id": seen}]

    def priorities() -> list[int]:
        return [admin.ask("GET", f"/v1/jobs/{one}").json()["priority"] for one in (first, mine, seen)]

    producer.enqueue(MINE, priority=9, depends_on=needs)
    assert priorities() == [1, 9, 1]
    batch = {"jobs": [{"task": "t", "queue": MINE, "priority": 8, "depends_on": needs}], "atomic": False}
    assert len(producer.ask("POST", "/v1/jobs/batch", batch).json()["accepted"]) == 1
    assert priorities() == [1, 9, 1]
    admin.enqueue(MINE, priority=10, depends_on=needs)
    assert priorities() == [10, 10, 10]


@pytest.mark.shows("R-SEC-13")
def test_a_sequence_holds_over_all_queues_so_it_takes_a_key_for_all(holders: dict[str, Holder]) -> None:
    job = {"task": "t", "queue": MINE, "sequence": "s"}

    single = holders["producer"].ask("POST", "/v1/jobs", job)
    batch = holders["producer"].code("POST", "/v1/jobs/batch", {"jobs": [job]})

    assert (single.status_code, single.json()["code"]) == batch == (403, "forbidden")
    assert "produce for all queues" in single.json()["detail"]
    assert holders["admin"].code("POST", "/v1/jobs", job)[0] == 201


@pytest.mark.shows("R-SEC-13", "R-HTTP-05")
@pytest.mark.parametrize("path", ["", "/wait?timeout_seconds=0"])
def test_a_job_lists_only_neighbours_that_the_key_may_see(holders: dict[str, Holder], path: str) -> None:
    admin = holders["admin"]
    parents = [admin.enqueue(queue) for queue in (MINE, OTHER)]
    job = admin.enqueue(MINE, depends_on=[{"id": parent} for parent in parents])
    children = [admin.enqueue(queue, depends_on=[{"id": job}]) for queue in (SEEN, OTHER)]

    def neighbours(holder: Holder) -> tuple[set[str], set[str]]:
        shown = holder.ask("GET", f"/v1/jobs/{job}{path}").json()
        return {one["id"] for one in shown["depends_on"]}, {one["id"] for one in shown["dependants"]}

    assert neighbours(admin) == (set(parents), set(children))
    assert neighbours(holders["producer"]) == ({parents[0]}, {children[0]})


@pytest.mark.shows("R-SEC-13")
def test_nothing_in_a_job_names_one_of_a_hidden_queue(holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    hidden, seen = admin.enqueue(OTHER), admin.enqueue(SEEN)
    jobs = [
        admin.enqueue(MINE, depends_on=[{"id": hidden}, {"id": seen}], parent_id=hidden),
        admin.enqueue(MINE, depends_on=[{"id": seen}], parent_id=seen),
    ]
    for parent in (hidden, seen):
        admin.ask("POST", f"/v1/jobs/{parent}/cancel", {})

    def named_parents(holder: Holder, job: str) -> dict[str, bool]:
        shown = holder.ask("GET", f"/v1/jobs/{job}")
        assert (shown.json()["state"], shown.json()["events"][0]["kind"]) == ("cancelled", "parent_failed")
        return {parent: parent in shown.text for parent in (hidden, seen)}

    assert [named_parents(admin, job) for job in jobs] == [
        {hidden: True, seen: True},
        {hidden: False, seen: True},
    ]
    assert [named_parents(holders["producer"], job)[hidden] for job in jobs] == [False, False]
    assert named_parents(holders["producer"], jobs[1])[seen]


@pytest.mark.shows("R-SEC-13")
def test_no_list_names_a_job_of_a_hidden_queue(holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    hidden = admin.enqueue(OTHER)
    job = admin.enqueue(SEEN, depends_on=[{"id": hidden, "on_failure": "fail"}])
    admin.ask("DELETE", f"/v1/jobs/{hidden}")
    where = {"where": {"queues": [SEEN]}}
    looks: list[tuple[str, str, Any]] = [
        ("POST", "/v1/jobs/search", where),
        ("POST", "/v1/dead-letters/search", where),
        ("GET", f"/v1/jobs/{job}/graph", None),
    ]

    for method, path, body in looks:
        lines = {
            name: [one for one in holders[name].ask(method, path, body).json()["jobs"] if one["id"] == job]
            for name in ("admin", "producer")
        }
        assert [hidden in one["reason"] for one in lines["admin"]] == [True], path
        assert [one["reason"] for one in lines["producer"]] == ["a job, which it depends on, was deleted"]


def test_no_line_that_is_told_names_a_job_of_a_hidden_queue() -> None:
    for kind in (EventKind.PARENT_FAILED, EventKind.REPLAYED, EventKind.FOLLOW_UP_SKIPPED):
        event = Event(kind=kind, queue=QueueName(MINE), detail="like hidden")
        assert [audit_event_view(1, event, names_others=one).detail for one in (True, False)] == [
            "like hidden",
            "",
        ]
    cancelled = Event(kind=EventKind.CANCEL, queue=QueueName(MINE), detail="not now")
    assert audit_event_view(1, cancelled, names_others=False).detail == "not now"


def test_each_outcome_is_answered_for_itself_also_that_of_a_hidden_job(holders: dict[str, Holder]) -> None:
    admin, consumer = holders["admin"], holders["consumer"]
    ids = [admin.enqueue(OTHER, priority=100), admin.enqueue(MINE, priority=100)]
    outcomes = []
    for queue in (OTHER, MINE):
        [job] = admin.ask("POST", "/v1/claim", {"queues": [queue], "wait_seconds": 0}).json()["jobs"]
        outcomes.append({"id": job["id"], "lease": job["lease"]})

    settled = consumer.ask("POST", "/v1/settle", {"outcomes": outcomes}).json()["settled"]

    assert [(one["id"], one["is_kept"]) for one in settled] == [(ids[0], False), (ids[1], True)]
    assert settled[0]["problem"]["code"] == "job_not_found"
    states = [admin.ask("GET", f"/v1/jobs/{one}").json()["state"] for one in ids]
    assert states == ["running", "completed"]


@pytest.mark.shows("R-SEC-12")
def test_who_has_replayed_a_job_is_in_the_audit_log(served: Served, holders: dict[str, Holder]) -> None:
    old = holders["admin"].enqueue(MINE)
    answer = holders["operator"].ask("POST", f"/v1/jobs/{old}/replay", {}, **{"X-Request-Id": "r-9"})

    reader = served.service.pool.engine.reader()
    [event] = [one for _, one in reader.audit() if one.kind is EventKind.REPLAYED]
    reader.close()
    assert (event.actor_name, event.request_id, event.detail) == ("operator", "r-9", f"like {old}")
    assert (event.job_id, event.queue) == (answer.json()["id"], MINE)
    assert event.kind in ACTIONS


@pytest.mark.shows("R-SEC-03")
def test_who_waits_with_a_key_that_is_revoked_meanwhile_gets_nothing(
    served: Served, holders: dict[str, Holder], keys: ApiKeyAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.service.auth.KEY_CACHE_SECONDS", 0.0)
    queue = served.queue()
    late = Holder(served, keys.create("late", [Grant.parse(f"consume:{queue}")]).token)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(late.code, "POST", "/v1/claim", {"queues": [queue], "wait_seconds": 20})
        eventually(lambda: any(queue in kind.queues for kind in list(served.service.claim_waiters._groups)))
        keys.revoke("late")

        job = holders["admin"].enqueue(queue)

        assert waiting.result(PATIENCE) == (401, "unauthenticated")
    shown = holders["admin"].ask("GET", f"/v1/jobs/{job}").json()
    assert (shown["state"], shown["failures"]) == ("pending", 0)
