"""Those who look on: server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import pytest

from forebay.domain.api_key import Grant
from forebay.errors import StoreUnavailable, Unauthenticated
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.caller import Caller
from forebay.service.http.routes import events
from forebay.service.http.routes.events import EventStream
from forebay.service.runtime.event_feed import MAX_UNREAD, FeedFilter, FeedMessage
from forebay.service.schema.events import EventsMissed
from forebay.service.server_security import ServerSecurity
from forebay.service.service import Service
from forebay.stores.factory import open_engine
from tests.service.live_server import PATIENCE, Served, serving
from tests.worker.support import eventually

NO_SCOPE: Any = {"type": "http"}
EVERYTHING = FeedFilter(queue=lambda _: True, workers=True, audit=True, names_other_jobs=True)


class FeedEvent(NamedTuple):
    kind: str
    number: str
    body: Any


class EventReader:
    """A client that reads events."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.headers = answer.headers
        self._lines = answer.iter_lines()

    def events(self) -> Iterator[FeedEvent]:
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name:
                fields[name] = value
            elif "data" in fields:
                yield FeedEvent(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
                fields = {}

    def until(self, kind: str, *found: Any) -> FeedEvent:
        """The first event of a kind in which this stands."""
        for event in self.events():
            if event.kind == kind and all(one in json.dumps(event.body) for one in found):
                return event
        raise AssertionError(f"the stream has ended without {kind} {found}")


@contextmanager
def watching(served: Served, query: str = "", **headers: str) -> Iterator[EventReader]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with served.client.stream("GET", f"/v1/events/stream{query}", headers=named) as answer:
        assert answer.status_code == 200, answer.read()
        yield EventReader(answer)


@pytest.mark.shows("R-HTTP-42", "R-HTTP-41")
def test_who_comes_is_told_how_everything_is(served: Served) -> None:
    queue = served.queue()
    served.enqueue(queue)

    with watching(served) as stream:
        event = stream.until("queues")
        workers = stream.until("workers")

    [mine] = [one for one in event.body["queues"] if one["name"] == queue]
    assert (mine["state"], mine["counts"]["pending"]) == ("active", 1)
    assert event.body["is_all"]
    assert isinstance(workers.body["workers"], list)
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert "no-store" in stream.headers["Cache-Control"]
    assert stream.headers["X-Accel-Buffering"] == "no"


@pytest.mark.shows("R-TEST-34")
def test_cp5_1_dashboard_stream_shows_a_change(served: Served) -> None:
    queue = served.queue()

    with watching(served) as stream:
        stream.until("queues")
        served.enqueue(queue)
        event = stream.until("queues", queue)

    [mine] = [one for one in event.body["queues"] if one["name"] == queue]  # others may use this server
    assert mine["counts"]["pending"] == 1
    assert not event.body["is_all"]


@pytest.mark.shows("R-DONE-16")
def test_the_end_of_a_job_is_told_to_who_looks_on(served: Served) -> None:
    queue = served.queue()
    job = served.claimed(queue)

    with watching(served, f"?queue={queue}") as stream:
        stream.until("queues")
        served.done("POST", f"/v1/jobs/{job['id']}/ack", {"lease": job["lease"]})
        event = stream.until("queues", '"completed": 1')

    assert [one["counts"]["completed"] for one in event.body["queues"]] == [1]


@pytest.mark.shows("R-HTTP-43")
def test_what_an_operator_does_is_told_and_told_again_to_a_viewer_that_comes_back(served: Served) -> None:
    queue = served.queue()
    job_id = served.enqueue(queue)

    with watching(served) as stream:
        before = stream.until("queues").number
        served.done("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "not now"})
        first = stream.until("audit", job_id)
    with watching(served, Last_Event_ID=before or "0") as stream:
        again = stream.until("audit", job_id)
    with watching(served, "?after=0") as stream:
        seen_by_all = stream.until("audit", job_id)

    [line] = [one for one in again.body["lines"] if one["job_id"] == job_id]
    assert line in first.body["lines"]
    assert line in seen_by_all.body["lines"]
    assert (line["kind"], line["queue"]) == ("cancel", queue)
    assert int(again.number) >= line["number"]


@pytest.mark.shows("R-HTTP-43")
def test_only_the_queues_that_were_named_are_told(served: Served) -> None:
    mine, other = served.queue(), served.queue()

    with watching(served, f"?queue={mine}") as stream:
        first = stream.until("queues")
        served.enqueue(other)
        served.enqueue(mine)
        event = stream.until("queues")

    assert [one["name"] for one in first.body["queues"]] == [mine]
    assert [one["name"] for one in event.body["queues"]] == [mine]


@pytest.mark.shows("R-HTTP-43")
def test_who_names_a_task_is_told_of_its_jobs_alone(served: Served) -> None:
    queue = served.queue()
    mine, other = (served.enqueue(queue, task=task) for task in ("mine", "other"))

    with watching(served, f"?queue={queue}&task=mine") as stream:
        stream.until("queues")
        for job_id in (other, mine):
            served.done("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "not now"})
        event = stream.until("audit")

    assert {line["job_id"] for line in event.body["lines"]} == {mine}


def test_a_queue_that_goes_is_told(plain: Served) -> None:
    queue = plain.queue()

    with watching(plain) as stream:
        stream.until("queues", queue)
        plain.done("DELETE", f"/v1/queues/{queue}")
        event = stream.until("queues", queue)

    assert event.body["removed"] == [queue]


def test_a_key_shows_its_queues_and_no_more() -> None:
    engine = open_engine("memory://")
    with serving(engine, security=ServerSecurity(requires_keys=True)) as served:
        mine, other = served.queue(), served.queue()
        store, reader = engine.store(), engine.reader()
        keys = ApiKeyAdmin(store, reader, actor="ann")
        viewer = f"Bearer {keys.create('viewer', [Grant.parse(f'view:{mine}')]).token}"
        producer = f"Bearer {keys.create('producer', [Grant.parse(f'produce:{mine}')]).token}"
        store.close()
        reader.close()

        with watching(served, Authorization=viewer, Last_Event_ID="0") as stream:
            queues, workers = stream.until("queues"), stream.until("workers")
            log = stream.until("audit")
        with watching(served, Authorization=producer) as stream:
            nothing = stream.until("queues")
        refused = served.client.get(
            f"/v1/events/stream?queue={other}",
            headers={"Authorization": viewer, "Accept": "text/event-stream"},
        )

    assert [one["name"] for one in queues.body["queues"]] == [mine]
    assert workers.body["workers"] == nothing.body["queues"] == []
    assert {one["queue"] for one in log.body["lines"]} == {mine}
    assert refused.status_code == 403


def test_a_key_that_is_revoked_ends_the_stream_before_it_is_told_more() -> None:
    async def revoked() -> Any:
        raise Unauthenticated("the key was revoked")

    async def scene() -> list[bytes]:
        service, bodies = Service(open_engine("memory://")), []
        stream = EventStream(service.events, Caller("ann", None, current_key=revoked), EVERYTHING)

        async def send(message: Any) -> None:
            bodies.append(message.get("body", b""))

        async def receive() -> Any:
            await asyncio.Event().wait()

        await asyncio.wait_for(stream(NO_SCOPE, receive, send), PATIENCE)
        await service.stop()
        return bodies

    bodies = asyncio.run(scene())

    assert [body.partition(b" ")[0] for body in bodies] == [b"", b"retry:", b"event:", b""]
    assert b'"code":"unauthenticated"' in bodies[-2]


def test_the_store_is_not_asked_while_no_viewer_looks_on(plain: Served) -> None:
    with watching(plain) as stream:
        stream.until("queues")
        eventually(lambda: plain.service.events.listeners == 1)  # those of other tests have gone

    eventually(lambda: plain.service.events.listeners == 0)
    eventually(lambda: plain.service.events._task is None)


@pytest.mark.shows("R-HTTP-44")
def test_a_client_that_does_not_read_is_let_go() -> None:
    async def scene() -> int:
        service = Service(open_engine("memory://"))
        stream = EventStream(service.events, Caller("ann", None), EVERYTHING)
        begun = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                begun.set()
                await asyncio.Event().wait()  # the other end takes nothing

        async def receive() -> Any:
            await asyncio.Event().wait()

        answering = asyncio.ensure_future(stream(NO_SCOPE, receive, send))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        [listener] = service.events._listeners
        for number in range(MAX_UNREAD + 1):
            listener.put(FeedMessage("missed", EventsMissed(after=number), number))
        await asyncio.wait_for(answering, PATIENCE)
        await service.stop()
        return service.events.listeners

    assert asyncio.run(scene()) == 0


@pytest.mark.shows("R-HTTP-43")
def test_a_silent_stream_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch, plain: Served) -> None:
    assert events.COMMENT_SECONDS == 30
    monkeypatch.setattr(events, "COMMENT_SECONDS", 0.01)

    with plain.client.stream("GET", "/v1/events/stream?queue=none") as answer:
        assert ": still here" in answer.iter_lines()


def test_who_was_away_for_too_long_is_told_so() -> None:
    async def scene() -> list[str]:
        service = Service(open_engine("memory://"))
        store = service.pool.engine.store()
        for number in range(101):
            store.save_queue("mail", {"weight": number + 1})  # type: ignore[arg-type]  # a plain text
        with service.events.listen(EVERYTHING, 0) as listener:
            events = [await listener.next(PATIENCE) for _ in range(4)]
        store.close()
        await service.stop()
        return [one.kind for one in events if one]

    assert asyncio.run(scene()) == ["queues", "workers", "missed", "audit"]


@pytest.mark.shows("R-HTTP-43")
def test_a_store_that_is_away_is_told_and_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, plain: Served
) -> None:
    def gone(*_: Any) -> Any:
        raise StoreUnavailable("the store is away")

    with watching(plain) as stream:
        stream.until("workers")
        with monkeypatch.context() as patched:
            patched.setattr(plain.service.events, "_load_state", gone)
            event = stream.until("problem")
        queue = plain.queue()
        stream.until("queues", queue)

    assert event.body["code"] == "store_unavailable"


def test_a_stop_lets_those_who_look_on_go() -> None:
    with serving(open_engine("memory://")) as served, watching(served) as stream:
        stream.until("queues")
        served.service.events.end_streams()

        assert [one.kind for one in stream.events() if one.kind != "workers"] == []
        with watching(served) as late:
            assert list(late.events()) == []
