"""`TaskService` over a server, on every engine."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from forebay import Forebay
from forebay.compat.task_service.service import TaskService
from tests.service.live_server import PATIENCE, Served


@pytest.mark.shows("R-LEASE-13", "R-LEASE-31", "R-RETRY-13")
def test_a_task_is_waited_for_refused_when_late_and_acknowledged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    queue = served.queue()
    with Forebay(served.address) as app, TaskService(app) as service, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.dequeue, queue, "w1", task_types=["send"])
        made = service.enqueue(queue, {"to": "ada"}, metadata={"task_type": "send"})
        first = waiting.result(PATIENCE)
        assert first is not None
        assert service.nack_task(first.id, first.token or "", "busy", retry_after_seconds=0)

        second = service.dequeue(queue, "w2")
        assert second is not None
        done = service.ack_task(second.id, second.token or "", 8)
        found = service.get_task_status(made.task_id)

        service.enqueue(queue, 1)
        taken = service.dequeue(queue, "w1")
        assert taken is not None
        served.done("POST", f"/v1/jobs/{taken.id}/cancel", {"force": True})
        with caplog.at_level(logging.WARNING):
            late = service.ack_task(taken.id, taken.token or "")
        answer = served.post(f"/v1/jobs/{taken.id}/ack", {"lease": taken.token})

    assert (done, late) == (True, False)
    assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
    assert "ack of task" in caplog.text  # where it was asked for
    assert "the outcome of attempt 1" in caplog.text  # and in the log of the server
    assert found is not None
    assert (found.status, found.result, found.attempts) == ("COMPLETED", 8, 2)
    assert (found.priority, found.max_attempts) == (50, 3)
