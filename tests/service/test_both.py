"""HTTP and gRPC are two ways to the same operations: the same requests get the same answers."""

from __future__ import annotations

from typing import Final

import pytest

from forebay.domain.api_key import Grant
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.grpc.method_table import SERVICES
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import speaking
from tests.service.operation_walk import STEPS, WAYS, ByGrpc, ByHttp, walk
from tools.reference import document

ROLES: Final = ("admin", "produce:mail", "consume:mail", "view:mail", "operate:mail")
# What is there for browsers and for monitoring of a server is no matter of gRPC.
TAGS: Final = {
    *(
        "produce",
        "consume",
        "queues",
        "jobs",
        "dead letters",
        "schedules",
        "workers",
        "limits",
        "keys",
        "audit",
    )
}
# Answers that go on and on have tests of their own.
STREAMS: Final = {"Producer.WatchTask", "Consumer.DequeueStream"}
ONE_JOB: Final = "Consumer.Dequeue"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.shows("R-GRPC-01", "R-GRPC-02", "R-GRPC-03", "R-SDK-07")
def test_the_same_requests_get_the_same_answers(role: str) -> None:
    answers = []
    for way in (ByHttp, ByGrpc):
        engine = open_engine("memory://")
        store, reader = engine.store(), engine.reader()
        keys = ApiKeyAdmin(store, reader, actor="test")
        admin, asker = (
            keys.create(name, [Grant.parse(grant)]).token for name, grant in (("root", "admin"), ("it", role))
        )
        with speaking(engine, security=ServerSecurity(requires_keys=True)) as spoken:
            answers.append(walk(way(spoken, asker), way(spoken, admin)))
        store.close()
        reader.close()

    by_http, by_grpc = answers
    for step in STEPS:
        assert by_grpc[step.name] == by_http[step.name], step
    assert len({code for code, _ in by_http.values()}) > 3


@pytest.mark.shows("R-GRPC-01")
def test_the_walk_goes_through_every_operation_and_every_method() -> None:
    routes = {
        operation["operationId"]
        for methods in document()["paths"].values()
        for operation in methods.values()
        if operation["tags"][0] in TAGS
    }
    methods = {f"{name}.{method.name}" for name, found in SERVICES.items() for method in found}

    assert {step.operation for step in STEPS} == set(WAYS) >= routes
    assert {way.rpc for way in WAYS.values()} == methods - STREAMS - {ONE_JOB}
