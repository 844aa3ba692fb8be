"""Those who try to get in over HTTP without a key that allows it, and cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job_history import EventKind
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.required_roles import REQUIRED_ROLES
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving

MINE, OTHER = "mine", "mine-not"
JOB = {"task": "t", "queue": MINE}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server that asks for keys, with two queues."""
    engine = open_engine("memory://")
    with serving(engine, security=ServerSecurity(requires_keys=True)) as found:
        store = engine.store()
        for name in (MINE, OTHER):
            store.save_queue(name)  # type: ignore[arg-type]  # a plain text names it
        yield found
        store.close()


GRANTS = {
    "admin": ["admin"],
    "producer": [f"produce:{MINE}"],
    "consumer": [f"consume:{MINE}"],
    "viewer": [f"view:{MINE}"],
    "reader": ["view", f"consume:{MINE}"],
    "quick": ["produce"],
    "operator": [f"operate:{MINE}"],
}


@pytest.fixture(scope="module")
def holders(served: Served) -> dict[str, Holder]:
    """Clients by the names of their keys. All keys are made before the first request, and one is revoked."""
    engine = served.service.pool.engine
    store, reader = engine.store(), engine.reader()
    keys = ApiKeyAdmin(store, reader, actor="ann")
    made = {
        name: keys.create(name, [Grant.parse(one) for one in grants]).token for name, grants in GRANTS.items()
    }
    made["revoked"] = keys.create("revoked", [Grant.parse("admin")]).token
    keys.revoke("revoked")
    made["expired"] = keys.create("expired", [Grant.parse("admin")], lasts_ms=0).token
    made["slow"] = keys.create("slow", [Grant.parse("view")], rate=1, burst=2).token
    store.close()
    reader.close()
    return {name: Holder(served, token) for name, token in made.items()}


@pytest.mark.shows("R-SEC-03")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer fbk_admin.",
        "Bearer fbk_admin.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer \u00ff",
    ],
)
def test_without_a_key_nothing_is_answered(
    served: Served, holders: dict[str, Holder], header: str | None
) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
    paths = [("POST", "/v1/jobs"), ("GET", "/v1/jobs/x"), ("POST", "/v1/claim"), ("GET", "/v1/nowhere")]

    answers = [served.client.request(method, path, content=b"{", headers=headers) for method, path in paths]

    assert {(one.status_code, one.json()["code"]) for one in answers} == {(401, "unauthenticated")}
    assert {one.headers["WWW-Authenticate"] for one in answers} == {"Bearer"}


def test_a_key_that_is_over_is_as_good_as_none(holders: dict[str, Holder]) -> None:
    assert holders["revoked"].code("POST", "/v1/jobs", JOB) == (401, "unauthenticated")
    assert holders["expired"].code("POST", "/v1/jobs", JOB) == (401, "unauthenticated")


def test_every_operation_says_which_role_it_needs(served: Served) -> None:
    document = served.client.get("/openapi/v1.json").json()
    operations = {
        one["operationId"]
        for path, methods in document["paths"].items()
        for one in methods.values()
        if not path.startswith(("/health/", "/v1/login"))  # these are open
    }

    assert "enqueue" in operations
    assert operations - REQUIRED_ROLES.keys() == set()


def test_health_and_the_document_are_open_to_all_clients(served: Served) -> None:
    for path in ("/health/live", "/health/ready", "/openapi/v1.json"):
        assert served.client.get(path).status_code == 200


@pytest.mark.shows("R-SEC-13")
def test_a_role_gives_what_it_says_and_no_more(holders: dict[str, Holder]) -> None:
    producer, consumer, viewer = (holders[name] for name in ("producer", "consumer", "viewer"))
    job_id = producer.enqueue(MINE)
    path = f"/v1/jobs/{job_id}"

    assert (
        producer.code("GET", path)[0] == consumer.code("GET", path)[0] == viewer.code("GET", path)[0] == 200
    )
    forbidden = (403, "forbidden")
    assert consumer.code("POST", "/v1/jobs", JOB) == viewer.code("POST", "/v1/jobs", JOB) == forbidden
    assert (
        consumer.code("POST", f"{path}/cancel", {}) == viewer.code("POST", f"{path}/cancel", {}) == forbidden
    )
    assert viewer.code("PATCH", path, {"priority": 3}) == forbidden
    assert producer.code("POST", "/v1/claim", {"queues": [MINE]}) == forbidden
    assert producer.code("GET", f"/v1/queues/{MINE}/peek") == forbidden
    [claimed] = consumer.ask("POST", "/v1/claim", {"queues": [MINE], "wait_seconds": 0}).json()["jobs"]
    lease = {"lease": claimed["lease"]}
    for action in ("ack", "nack", "heartbeat"):
        assert producer.code("POST", f"{path}/{action}", lease) == forbidden
        assert viewer.code("POST", f"{path}/{action}", lease) == forbidden
    assert consumer.code("POST", f"{path}/ack", lease)[0] == 200


def test_a_key_for_one_queue_opens_no_other(holders: dict[str, Holder]) -> None:
    admin, producer, consumer = (holders[name] for name in ("admin", "producer", "consumer"))
    hidden = admin.enqueue(OTHER)
    theirs = {"task": "t", "queue": OTHER}

    assert producer.code("POST", "/v1/jobs", theirs) == (403, "forbidden")
    assert producer.code("POST", "/v1/jobs/batch", {"jobs": [JOB, theirs]}) == (403, "forbidden")
    assert consumer.code("POST", "/v1/claim", {"queues": [MINE, OTHER]}) == (403, "forbidden")
    assert consumer.code("GET", f"/v1/queues/{OTHER}/peek") == (403, "forbidden")
    unknown = (404, "job_not_found")
    for path in ("", "/wait?timeout_seconds=0", "/result"):
        assert producer.code("GET", f"/v1/jobs/{hidden}{path}") == unknown
    assert producer.code("POST", f"/v1/jobs/{hidden}/cancel", {}) == unknown
    assert producer.code("PATCH", f"/v1/jobs/{hidden}", {"priority": 3}) == unknown
    [claimed] = admin.ask("POST", "/v1/claim", {"queues": [OTHER], "wait_seconds": 0}).json()["jobs"]
    lease = {"lease": claimed["lease"]}
    for action in ("ack", "nack", "heartbeat"):
        assert consumer.code("POST", f"/v1/jobs/{hidden}/{action}", lease) == unknown
    assert admin.ask("GET", f"/v1/jobs/{hidden}").json()["state"] == "running"


@pytest.mark.shows("R-SEC-12")
def test_who_did_it_and_by_which_request_is_in_the_audit_log(
    served: Served, holders: dict[str, Holder]
) -> None:
    job_id = holders["producer"].enqueue(MINE)

    answer = holders["producer"].ask("POST", f"/v1/jobs/{job_id}/cancel", {}, **{"X-Request-Id": "r-77"})
    made_up = holders["producer"].ask("GET", f"/v1/jobs/{job_id}", **{"X-Request-Id": "a b#c"})

    reader = served.service.pool.engine.reader()
    [event] = [one for _, one in reader.audit() if one.kind is EventKind.CANCEL and one.job_id == job_id]
    reader.close()
    assert (event.actor_name, event.request_id, answer.headers["X-Request-Id"]) == (
        "producer",
        "r-77",
        "r-77",
    )
    assert event.changes == {"state": ("pending", "cancelled")}
    assert len(made_up.headers["X-Request-Id"]) == 32


@pytest.mark.shows("R-RATE-02")
def test_no_client_spends_what_a_queue_takes_of_another_client(
    served: Served, holders: dict[str, Holder]
) -> None:
    queue = served.queue(client_rate=1, client_burst=1)
    body = {"task": "t", "queue": queue, "client": "admin"}
    # One more a second: on a slow machine it takes some more requests than two until one is too many.
    while (second := holders["quick"].ask("POST", "/v1/jobs", body)).status_code == 201:
        body["client"] = "another"
    theirs = holders["admin"].ask("POST", "/v1/jobs", {"task": "t", "queue": queue})

    assert (body["client"], second.status_code, theirs.status_code) == ("another", 429, 201)
    assert second.json()["code"] == "rate_limited"
    assert int(second.headers["Retry-After"]) >= 1


@pytest.mark.shows("R-RATE-03", "R-HTTP-25")
def test_who_asks_too_often_is_told_when_to_ask_again(holders: dict[str, Holder]) -> None:
    answers = [holders["slow"].ask("GET", "/v1/jobs/unknown") for _ in range(2)]
    # The bucket fills at one a second: on a slow machine it takes some more requests than two to empty it.
    while answers[-1].status_code != 429:
        answers.append(holders["slow"].ask("GET", "/v1/jobs/unknown"))

    first, last = answers[0], answers[-1]
    assert (first.status_code, first.headers["X-RateLimit-Limit"]) == (404, "2")
    assert first.headers["X-RateLimit-Remaining"] == "1"
    assert last.json()["code"] == "too_many_requests"
    assert (last.headers["X-RateLimit-Remaining"], last.headers["Retry-After"]) == ("0", "1")
    assert last.headers["X-RateLimit-Reset"] in ("1", "2")


# A server without keys


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 404),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "["}, 403),
        ({"Host": "localhost:1"}, 404),
        ({"Host": "jobs.example.com"}, 404),
        ({"Host": "jobs.example.com", "Origin": "https://jobs.example.com"}, 404),
        ({"Host": "[::1]:80", "Origin": "http://[::1]"}, 404),
        ({"Host": "localhost:8080", "Origin": "http://localhost:8080"}, 404),
        ({"Host": "localhost:8080", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://localhost"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://localhost:x"}, 403),
    ],
)
def test_pages_of_others_get_nothing_from_a_server_without_keys(
    unlocked: Served, headers: dict[str, str], status: int
) -> None:
    assert unlocked.client.get("/v1/jobs/unknown", headers=headers).status_code == status


@pytest.fixture(scope="module")
def unlocked() -> Iterator[Served]:
    hosts = frozenset({"jobs.example.com"})
    with serving(open_engine("memory://"), security=ServerSecurity(allowed_hosts=hosts)) as found:
        yield found


HERE, THERE = {"queues": [MINE]}, {"queues": [MINE, OTHER]}
TEXT_SEARCH = {**HERE, "text": "s3cret"}
MOVED = {"action": "revive", "where": HERE, "queue": OTHER}
OK, NO = 200, 403


@pytest.mark.parametrize(
    ("method", "path", "body", "viewer", "operator"),
    [
        ("GET", f"/v1/queues/{MINE}", None, OK, OK),
        ("GET", f"/v1/queues/{OTHER}", None, NO, NO),
        ("POST", "/v1/queues", {"name": "new"}, NO, NO),
        ("PATCH", f"/v1/queues/{MINE}", {"weight": 2}, NO, NO),
        ("DELETE", f"/v1/queues/{MINE}?force=true", None, NO, NO),
        ("POST", f"/v1/queues/{MINE}/resume", None, NO, OK),
        ("POST", f"/v1/queues/{OTHER}/pause", None, NO, NO),
        ("POST", f"/v1/queues/{MINE}/purge", {"dry_run": True}, NO, OK),
        ("POST", f"/v1/queues/{OTHER}/purge", {"dry_run": True}, NO, NO),
        ("POST", f"/v1/queues/{MINE}/requeue", {"dry_run": True}, NO, OK),
        ("POST", "/v1/jobs/search", {"where": HERE}, OK, OK),
        ("POST", "/v1/jobs/search", {"where": THERE}, NO, NO),
        ("POST", "/v1/jobs/search", {}, NO, NO),
        ("POST", "/v1/jobs/bulk", {"action": "delete", "where": HERE, "dry_run": True}, NO, OK),
        ("POST", "/v1/jobs/bulk", {"action": "cancel", "all": True}, NO, NO),
        ("POST", "/v1/jobs/bulk", MOVED, NO, NO),
        ("POST", "/v1/dead-letters/search", {"where": HERE}, OK, OK),
        ("POST", "/v1/dead-letters/revive", {"where": HERE}, NO, OK),
        ("POST", "/v1/dead-letters/purge", {}, NO, NO),
        ("POST", "/v1/dead-letters/failure-groups", {"where": HERE}, OK, OK),
        ("POST", "/v1/dead-letters/failure-groups", {}, NO, NO),
        ("POST", "/v1/dead-letters/gradual-revives", {"where": THERE}, NO, NO),
        ("POST", "/v1/dead-letters/gradual-revives", {}, NO, NO),
        # What a text is found in is not masked.
        ("POST", f"/v1/queues/{MINE}/purge", {"where": TEXT_SEARCH, "dry_run": True}, NO, NO),
        ("POST", f"/v1/queues/{MINE}/requeue", {"where": TEXT_SEARCH, "dry_run": True}, NO, NO),
        ("POST", "/v1/jobs/search", {"where": TEXT_SEARCH}, NO, NO),
        ("POST", "/v1/jobs/bulk", {"action": "delete", "where": TEXT_SEARCH, "dry_run": True}, NO, NO),
        ("POST", "/v1/dead-letters/search", {"where": TEXT_SEARCH}, NO, NO),
        ("POST", "/v1/dead-letters/revive", {"where": TEXT_SEARCH}, NO, NO),
        ("POST", "/v1/dead-letters/purge", {"where": TEXT_SEARCH}, NO, NO),
        ("POST", "/v1/dead-letters/failure-groups", {"where": TEXT_SEARCH}, NO, NO),
        ("POST", "/v1/dead-letters/gradual-revives", {"where": TEXT_SEARCH}, NO, NO),
        ("GET", "/v1/schedules", None, NO, NO),
        ("PUT", "/v1/schedules/s", {"task": "t", "every_seconds": 9}, NO, NO),
        ("POST", "/v1/schedules/s/fire", None, NO, NO),
        ("GET", "/v1/workers", None, NO, NO),
        ("POST", "/v1/workers/commands", {"kind": "stop"}, NO, NO),
        ("GET", "/v1/limits", None, NO, NO),
        ("PUT", "/v1/limits", {"scope": "global", "rate": 1}, NO, NO),
        ("DELETE", "/v1/limits/global", None, NO, NO),
    ],
)
@pytest.mark.shows("R-SEC-03")
def test_a_viewer_may_not_control_and_no_key_reaches_beyond_its_queues(
    holders: dict[str, Holder], method: str, path: str, body: Any, viewer: int, operator: int
) -> None:
    seen = [holders[name].code(method, path, body)[0] for name in ("viewer", "operator")]

    assert seen == [viewer, operator]


@pytest.mark.shows("R-SEC-03")
def test_a_gradual_revive_is_for_keys_that_may_control_its_queues(holders: dict[str, Holder]) -> None:
    nothing = {"tags": ["of no job"]}
    mine = (
        holders["operator"]
        .ask("POST", "/v1/dead-letters/gradual-revives", {"where": {**HERE, **nothing}})
        .json()["name"]
    )
    theirs = (
        holders["admin"].ask("POST", "/v1/dead-letters/gradual-revives", {"where": nothing}).json()["name"]
    )
    viewer, operator = holders["viewer"], holders["operator"]

    assert [
        one["name"] for one in viewer.ask("GET", "/v1/dead-letters/gradual-revives").json()["gradual_revives"]
    ] == [mine]
    assert viewer.code("GET", f"/v1/dead-letters/gradual-revives/{mine}")[0] == OK
    assert viewer.code("GET", f"/v1/dead-letters/gradual-revives/{theirs}") == (403, "forbidden")
    for verb in ("pause", "resume", "stop"):
        assert viewer.code("POST", f"/v1/dead-letters/gradual-revives/{mine}/{verb}") == (403, "forbidden")
        assert operator.code("POST", f"/v1/dead-letters/gradual-revives/{theirs}/{verb}") == (
            403,
            "forbidden",
        )


@pytest.mark.shows("R-SEC-03")
def test_who_might_claim_a_job_may_search_for_what_it_says(holders: dict[str, Holder]) -> None:
    answer = holders["reader"].ask("POST", "/v1/jobs/search", {"where": TEXT_SEARCH})
    refused = holders["reader"].ask("POST", "/v1/jobs/search", {"where": {**TEXT_SEARCH, **THERE}})

    assert answer.status_code == OK
    assert (refused.status_code, refused.json()["code"]) == (NO, "forbidden")
    assert holders["admin"].code("POST", "/v1/jobs/search", {"where": {"text": "s3cret"}})[0] == OK


@pytest.mark.parametrize("what", ["revive", "replay", ""])
def test_a_job_of_another_queue_is_not_there_for_an_operator(holders: dict[str, Holder], what: str) -> None:
    theirs, mine = holders["quick"].enqueue(OTHER), holders["quick"].enqueue(MINE)
    method, path = ("POST", f"/{what}") if what else ("DELETE", "")

    assert holders["operator"].code(method, f"/v1/jobs/{theirs}{path}", {}) == (404, "job_not_found")
    assert holders["viewer"].code(method, f"/v1/jobs/{mine}{path}", {}) == (403, "forbidden")


def test_what_depends_on_a_job_may_be_anywhere_so_it_takes_a_key_for_all_queues(
    holders: dict[str, Holder],
) -> None:
    first = holders["quick"].enqueue(MINE)
    body = {"task": "t", "queue": OTHER, "depends_on": [{"id": first}]}
    later = holders["quick"].ask("POST", "/v1/jobs", body).json()["id"]

    for name, action in (("producer", "cancel"), ("operator", "cancel"), ("operator", "revive")):
        refused = holders[name].code("POST", f"/v1/jobs/{first}/{action}", {"dependants": True})
        assert refused == (403, "forbidden")
    assert holders["admin"].ask("GET", f"/v1/jobs/{later}").json()["state"] == "blocked"
    done = holders["quick"].code("POST", f"/v1/jobs/{first}/cancel", {"dependants": True})
    assert (done[0], holders["admin"].ask("GET", f"/v1/jobs/{later}").json()["state"]) == (200, "cancelled")


def test_a_list_of_queues_shows_those_that_a_key_may_see(holders: dict[str, Holder]) -> None:
    admin, viewer, producer = (
        [queue["name"] for queue in holders[name].ask("GET", "/v1/queues").json()["queues"]]
        for name in ("admin", "viewer", "producer")
    )

    assert {MINE, OTHER} <= set(admin)
    assert (viewer, producer) == ([MINE], [])
