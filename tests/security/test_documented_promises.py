"""Sentences of the page about security that no other test of a part shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from forebay.domain.job import QueueName
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.generated import forebay_pb2_grpc
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.cli.command_runner import call
from tests.security.grants import Guarded, guarded
from tests.service.live_protocols import speaking
from tests.service.live_server import PATIENCE

MAIL = QueueName("mail")
HIDDEN = "4111-hidden"
GRANTS = {
    "admin": ["admin"],
    "producer": ["produce:mail"],
    "one": ["consume:mail"],
    "other": ["consume:mail"],
    "viewer": ["view:mail"],
    "operator": ["operate"],
}


@pytest.fixture
def world() -> Iterator[Guarded]:
    with guarded(GRANTS, (MAIL,)) as found:
        yield found


def enqueue(world: Guarded, **fields: object) -> str:
    answer = world["producer"].ask("POST", "/v1/jobs", {"task": "t", "queue": MAIL, **fields})
    assert answer.status_code == 201
    return str(answer.json()["id"])


def claim(world: Guarded, name: str) -> dict[str, str]:
    [job] = world[name].ask("POST", "/v1/claim", {"queues": [MAIL], "wait_seconds": 5}).json()["jobs"]
    return {"id": job["id"], "lease": job["lease"]}


def test_consumers_of_one_queue_can_settle_each_others_jobs(world: Guarded) -> None:
    enqueue(world)
    job = claim(world, "one")

    answer = world["other"].ask("POST", f"/v1/jobs/{job['id']}/ack", {"lease": job["lease"]})

    assert answer.status_code == 200


def test_viewers_see_an_idempotency_key_and_cannot_use_it(world: Guarded) -> None:
    job_id = enqueue(world, idempotency_key="order-7")
    body = {"task": "t", "queue": MAIL, "idempotency_key": "order-7"}

    for name in ("viewer", "operator"):
        assert world[name].ask("GET", f"/v1/jobs/{job_id}").json()["idempotency_key"] == "order-7"
        assert world[name].ask("POST", "/v1/jobs", body).status_code == 403
    assert world["producer"].ask("POST", "/v1/jobs", body).json()["id"] == job_id


def test_errors_are_shown_as_they_are(world: Guarded) -> None:
    job_id = enqueue(world)
    job = claim(world, "one")
    nack = {"lease": job["lease"], "error": f"password={HIDDEN}"}
    assert world["one"].ask("POST", f"/v1/jobs/{job_id}/nack", nack).status_code == 200

    assert HIDDEN in world["viewer"].ask("GET", f"/v1/jobs/{job_id}").text


def test_the_audit_log_has_no_arguments_metadata_or_refusals(world: Guarded) -> None:
    job_id = enqueue(world, args=[HIDDEN], metadata={"card": HIDDEN})
    change = {"metadata": {"card": HIDDEN, "more": HIDDEN}}
    assert world["viewer"].ask("POST", f"/v1/queues/{MAIL}/pause").status_code == 403
    assert world["producer"].ask("PATCH", f"/v1/jobs/{job_id}", change).status_code == 200
    assert world["operator"].ask("POST", f"/v1/jobs/{job_id}/cancel", {}).status_code == 200

    log = world["admin"].ask("POST", "/v1/audit/search", {}).json()["lines"]

    assert HIDDEN not in str(log)
    found = [(event["actor"], event["job_id"]) for event in log if event["actor"] not in ("", "ann")]
    assert found == [("operator", job_id), ("producer", job_id)]


def test_a_check_of_the_log_goes_on_where_the_last_one_ended(world: Guarded) -> None:
    world.store.chain_audit(1_000)
    after: int | None = 0
    checked = list[int]()
    while after is not None:
        answer = world["admin"].ask("POST", "/v1/audit/verify", {"after": after, "limit": 2}).json()
        assert answer["is_sound"]
        checked.append(answer["lines"])
        after = answer["next_after"]

    assert len(checked) > 1
    assert answer["position"] == len(world.reader.audit_chain())


def test_a_named_file_of_settings_reads_none_of_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()")
    (tmp_path / "forebay.toml").write_text('app = "trap:app"')
    (tmp_path / "safe.toml").write_text(f'url = "sqlite:///{tmp_path}/jobs.db"')

    call("--config", "safe.toml", "worker")

    assert not (tmp_path / "sprung").exists()
    call("worker")
    assert (tmp_path / "sprung").exists()


def test_connections_over_grpc_are_bounded() -> None:
    engine = open_engine("memory://")
    with speaking(engine, security=ServerSecurity(max_connections=3)) as spoken, ExitStack() as stack:
        workers = pb.ListWorkersRequest()
        spoken.admin.ListWorkers(workers, timeout=PATIENCE)
        codes = []
        for _ in range(3):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(spoken.target, options))
            try:
                forebay_pb2_grpc.AdminStub(channel).ListWorkers(workers, timeout=PATIENCE)
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as exc:
                codes.append(exc.code())

    assert codes == [grpc.StatusCode.OK] * 2 + [grpc.StatusCode.UNAVAILABLE]
