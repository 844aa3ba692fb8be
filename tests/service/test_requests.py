"""How requests went: by endpoint and method, for both protocols, as Prometheus reads it."""

from __future__ import annotations

import grpc
import pytest

from forebay.service.generated import forebay_pb2 as pb
from forebay.service.runtime.request_stats import BOUNDS, OTHER, EndpointMatcher, RequestRoute, RequestStats
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE


def exposed(spoken: Spoken) -> dict[str, str]:
    """The lines of /metrics: names and labels with their values."""
    lines = spoken.client.get("/metrics").text.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def took(endpoint: str, method: str) -> str:
    return f'api_request_duration_seconds_count{{endpoint="{endpoint}",method="{method}"}}'


def errors(endpoint: str, status: str) -> str:
    return f'api_errors_total{{endpoint="{endpoint}",status_code="{status}"}}'


@pytest.mark.shows("R-MET-06", "R-MET-13", "R-MET-20", "R-GRPC-06")
def test_requests_of_both_protocols_are_counted_by_endpoint_and_their_problems_by_status() -> None:
    with speaking(open_engine("memory://")) as spoken:
        spoken.admin.CreateQueue(
            pb.CreateQueueRequest(name="slow", settings=pb.QueueSettings(enqueue_rate=1, enqueue_burst=1)),
            timeout=PATIENCE,
        )
        first = spoken.enqueue("slow")
        one = {"task": "t", "queue": "slow"}
        statuses = [
            spoken.client.get(f"/v1/jobs/{first}").status_code,
            spoken.client.get("/v1/jobs/none").status_code,
            spoken.client.get("/v1/nonsense/here").status_code,
            spoken.client.request("BREW", "/v1/jobs").status_code,
            # More at once than the queue ever takes, however much time has passed.
            spoken.client.post("/v1/jobs/batch", json={"jobs": [one, one]}).status_code,
        ]
        several = {"jobs": [one, one, one], "atomic": False}
        refused = spoken.client.post("/v1/jobs/batch", json=several).json()["rejected"]
        with pytest.raises(grpc.RpcError):
            spoken.enqueue("nowhere")
        next(iter(spoken.producer.WatchTask(pb.WatchTaskRequest(id=first), timeout=PATIENCE)))
        with pytest.raises(grpc.RpcError):
            [*spoken.producer.WatchTask(pb.WatchTaskRequest(id="none"), timeout=PATIENCE)]

        found = exposed(spoken)

    assert statuses == [200, 404, 404, 405, 429]
    assert len(refused) > 1
    enqueue, watch = "/forebay.v1.Producer/Enqueue", "/forebay.v1.Producer/WatchTask"
    wanted = {
        took("/v1/jobs/{job_id}", "GET"): "2",
        errors("/v1/jobs/{job_id}", "404"): "1",
        took("other", "GET"): "1",
        took("/v1/jobs", "other"): "1",
        took("/v1/jobs/batch", "POST"): "2",
        errors("/v1/jobs/batch", "429"): "1",
        took(enqueue, "gRPC"): "2",
        errors(enqueue, "NOT_FOUND"): "1",
        took(watch, "gRPC"): "2",
        errors(watch, "NOT_FOUND"): "1",
        'rate_limited_requests_total{queue="slow"}': "2",
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_path_is_known_by_its_endpoint() -> None:
    endpoints = EndpointMatcher(["/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/search", "/v1/queues/{name}/pause"])

    paths = (
        "/v1/jobs",
        "/v1/jobs/1",
        "/v1/jobs/search",
        "/v1/queues/mail/pause",
        "/v1/queues/mail/dance",
        "",
    )
    assert [endpoints.match(path) for path in paths] == [
        *("/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/search", "/v1/queues/{name}/pause", OTHER, OTHER)
    ]


def test_a_length_is_counted_within_every_bound_that_it_keeps() -> None:
    clock = ManualClock()
    requests, route = RequestStats(clock), RequestRoute("/v1/jobs", "POST")
    began = clock.monotonic()
    requests.record_response(route, began)
    clock.advance(100)
    requests.record_response(route, began)
    clock.advance(seconds=600)
    requests.record_response(route, began)

    within = dict(requests.latencies[route].cumulative_counts())

    assert (within["0.001"], within["0.05"], within["0.25"], within["60"], within["+Inf"]) == (1, 1, 2, 2, 3)
    assert len(within) == len(BOUNDS) + 1
    assert round(requests.latencies[route].seconds, 1) == 600.2
