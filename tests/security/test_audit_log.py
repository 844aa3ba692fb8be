"""Attacks on the audit log: by keys that it watches, over HTTP, and by a program that writes to the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import DAY_MS, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.outcome import Discarded
from forebay.domain.settlement import decide
from forebay.operations.gradual_revive import advance_gradual_revives, start_gradual_revive
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_server import Holder, Served, serving
from tests.stores.contract.steps import BOOM
from tests.worker.support import eventually

pytestmark = pytest.mark.shows("R-SEC-12", "R-HIST-27")

QUEUE: Final = QueueName("a")
WORKER: Final = WorkerId("w")
HOLDERS: Final = {"admin": "admin", "mallory": "operate", "shop": "produce:a"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def served(path: Path, clock: ManualClock) -> Iterator[Served]:
    """A server that asks for keys, on a file that a test may write to."""
    engine = SqliteEngine(str(path), clock=clock)
    with serving(engine, security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture
def holders(served: Served) -> dict[str, Holder]:
    engine = served.service.pool.engine
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.save_queue(QUEUE, actor="root")
        keys = ApiKeyAdmin(store, reader, actor="root")
        made = {name: keys.create(name, [Grant.parse(grant)]).token for name, grant in HOLDERS.items()}
    return {name: Holder(served, token) for name, token in made.items()}


@pytest.fixture
def job_id(holders: dict[str, Holder]) -> str:
    return holders["shop"].enqueue(QUEUE)


def log_of(holders: dict[str, Holder], **query: Any) -> list[tuple[str, str]]:
    """Kinds and actors as the log tells them, oldest first."""
    answer = holders["admin"].ask("POST", "/v1/audit/search", {"limit": 1_000, **query})
    assert answer.is_success, answer.text
    return [(line["kind"], line["actor"]) for line in reversed(answer.json()["lines"])]


def verified(holders: dict[str, Holder]) -> dict[str, Any]:
    answer = holders["admin"].ask("POST", "/v1/audit/verify", {})
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def done(holder: Holder, method: str, address: str, body: Any = None) -> None:
    answer = holder.ask(method, address, body)
    assert answer.is_success, answer.text


def test_an_operator_who_deletes_a_job_does_not_delete_what_they_did_to_it(
    holders: dict[str, Holder], job_id: str
) -> None:
    mallory = holders["mallory"]
    done(mallory, "PATCH", f"/v1/jobs/{job_id}", {"priority": 7})
    done(mallory, "POST", f"/v1/jobs/{job_id}/cancel", {})
    done(mallory, "POST", f"/v1/jobs/{job_id}/revive", {})
    done(mallory, "POST", f"/v1/jobs/{job_id}/cancel", {})

    done(mallory, "DELETE", f"/v1/jobs/{job_id}")

    kinds = ["updated", "cancel", "revived", "cancel", "deleted"]
    assert log_of(holders, job_id=job_id) == [(kind, "mallory") for kind in kinds]


def test_a_flood_of_changes_does_not_hide_the_one_that_matters(
    holders: dict[str, Holder], job_id: str
) -> None:
    shop = holders["shop"]
    for number in range(100):
        done(shop, "PATCH", f"/v1/jobs/{job_id}", {"metadata": {"n": number}})

    done(shop, "POST", f"/v1/jobs/{job_id}/cancel", {})

    assert log_of(holders, job_id=job_id) == [("updated", "shop")] * 100 + [("cancel", "shop")]


def test_the_retention_of_a_queue_does_not_end_the_lines_of_its_jobs(
    served: Served, holders: dict[str, Holder], job_id: str, clock: ManualClock
) -> None:
    done(holders["admin"], "PATCH", f"/v1/queues/{QUEUE}", {"keep_finished_seconds": 3_600})
    done(holders["mallory"], "POST", f"/v1/jobs/{job_id}/cancel", {})

    with closing(served.service.pool.engine.store()) as store:
        clock.advance(ms=89 * DAY_MS)
        assert store.prune() == 1

    assert holders["admin"].code("GET", f"/v1/jobs/{job_id}") == (404, "job_not_found")
    assert log_of(holders, job_id=job_id) == [("cancel", "mallory")]


def test_a_mass_revival_is_in_the_log(
    served: Served, holders: dict[str, Holder], job_id: str, clock: ManualClock
) -> None:
    engine = served.service.pool.engine
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        [job] = store.settle_and_claim(WORKER, claims=[QueueClaim(QUEUE, 1)], room=1).jobs
        store.settle_and_claim(WORKER, [decide(job, Discarded(BOOM), 0)])
        start_gradual_revive(store, reader, JobQuery(), actor="mallory")
        clock.advance(ms=1)
        advance_gradual_revives(store, reader)

    assert ("gradual_revive", "mallory") in log_of(holders)
    # The server's own maintenance tasks may have taken this turn.
    eventually(lambda: ("revived", "mallory") in log_of(holders, job_id=job_id))


@pytest.mark.parametrize("name", ["mallory", "shop"])
def test_only_an_admin_checks_the_log(holders: dict[str, Holder], name: str) -> None:
    assert holders[name].code("POST", "/v1/audit/verify", {}) == (403, "forbidden")


# Who can write to the file


def change(statement: str) -> Callable[[sqlite3.Connection], object]:
    return lambda raw: raw.execute(statement)


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("update forebay_audit set actor = 'shop' where position = 5", 5),
        ("update forebay_audit set detail = detail || ' ' where position = 7", 7),
        ("update forebay_audit set occurred_at = occurred_at - 1 where position = 4", 4),
        ("update forebay_audit set changes = null where position = 5", 5),
        ("delete from forebay_audit where position = 5", 6),
        ("delete from forebay_audit where position <= 3", 4),
        ("update forebay_audit set position = null where position = 5", 6),
        ("update forebay_audit set position = -position where position = 5", 6),
    ],
)
def test_a_line_that_is_changed_or_removed_in_the_store_is_named(
    served: Served, holders: dict[str, Holder], job_id: str, path: Path, statement: str, position: int
) -> None:
    for _ in range(2):
        done(holders["mallory"], "POST", f"/v1/jobs/{job_id}/cancel", {})
        done(holders["mallory"], "POST", f"/v1/jobs/{job_id}/revive", {})
    with closing(served.service.pool.engine.store()) as store:
        store.chain_audit()
    sound = verified(holders)
    assert (sound["is_sound"], sound["lines"], sound["unchained"]) == (True, 8, 0)

    with closing(sqlite3.connect(path)) as raw, raw:
        change(statement)(raw)

    found = verified(holders)
    assert (found["is_sound"], found["flaw_position"]) == (False, position)


def test_lines_that_are_not_chained_yet_are_counted(holders: dict[str, Holder], job_id: str) -> None:
    done(holders["mallory"], "POST", f"/v1/jobs/{job_id}/cancel", {})

    found = verified(holders)

    # The server's own maintenance tasks may have chained the first ones meanwhile.
    assert (found["is_sound"], found["lines"] + found["unchained"]) == (True, 5)


# JSON may write an integer as a float, which is read as one below 2**53: that far the document goes.
@pytest.mark.parametrize(
    ("position", "is_read"), [(2**53 - 1, True), (float(2**53 - 1), True), (2**53, False)]
)
def test_the_largest_position_of_a_check_may_be_any_number(
    holders: dict[str, Holder], position: float, is_read: bool
) -> None:
    answer = holders["admin"].ask("POST", "/v1/audit/verify", {"after": position})

    assert answer.is_success is is_read
