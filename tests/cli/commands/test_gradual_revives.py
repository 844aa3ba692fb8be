"""`forebay gradual-revives`: dead letters come back in batches."""

from __future__ import annotations

from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.operations.gradual_revive import advance_gradual_revives, stop_gradual_revive
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, make, refusal
from tests.stores.contract import steps
from tests.worker.support import eventually

PLAN = (
    *("--initial-batch", "1", "--growth-factor", "3", "--max-batch", "50"),
    *("--every", "5s", "--max-failure-percent", "10"),
)


def test_a_gradual_revive_is_started_for_a_group_and_controlled(store: Store, reader: Reader) -> None:
    ids = [make(store, JobState.DEAD) for _ in range(2)]
    [group] = answer("dead", "groups")["groups"]

    revive = answer("gradual-revives", "start", "--group", group["id"], *PLAN, "--yes")
    name = revive["name"]

    assert (revive["state"], revive["group"], revive["query"]) == (
        "running",
        group["id"],
        {"states": ["dead"]},
    )
    assert revive["plan"] == {
        "initial_batch": 1,
        "growth_factor": 3,
        "max_batch": 50,
        "every_ms": 5_000,
        "max_failure_percent": 10,
    }
    eventually(
        lambda: advance_gradual_revives(store, reader) and answer("gradual-revives", "show", name)["revived"]
    )
    shown = answer("gradual-revives", "show", name)
    assert (shown["batches"], shown["revived"], shown["waiting"]) == (1, 1, 1)
    assert steps.states(reader, ids).count(JobState.PENDING) == 1
    assert answer("gradual-revives", "pause", name)["state"] == "paused"
    assert refusal("gradual-revives", "pause", name)["status"] == 5
    assert answer("gradual-revives", "resume", name)["state"] == "running"
    assert answer("gradual-revives", "stop", name)["reason"] == "by hand"
    assert [one["name"] for one in answer("gradual-revives", "list")["gradual_revives"]] == [name]
    assert refusal("gradual-revives", "show", "absent")["status"] == 4


def test_people_read_how_far_a_gradual_revive_is(store: Store, reader: Reader) -> None:
    make(store, JobState.DEAD)

    output = call("gradual-revives", "start", "--queue", "default", "--yes").stdout
    name = output.split()[2]

    assert f"see `forebay gradual-revives show {name}`" in output
    assert "not ended yet" in call("gradual-revives", "show", name).stdout
    assert name in call("gradual-revives", "list").stdout
    for verb, past in (("pause", "paused"), ("resume", "resumed"), ("stop", "stopped")):
        assert call("gradual-revives", verb, name).stdout == f"gradual revive {name} {past}\n"


def test_who_waits_sees_it_end_and_hears_by_the_status_whether_all_came_back(
    store: Store, reader: Reader
) -> None:
    name = answer("gradual-revives", "start", "--all", "--yes")["name"]
    eventually(lambda: not advance_gradual_revives(store, reader))

    assert answer("gradual-revives", "show", name, "--wait")["state"] == "completed"

    other = answer("gradual-revives", "start", "--task", "t", "--yes")["name"]
    stop_gradual_revive(store, reader, other)
    assert call("gradual-revives", "show", other, "--wait").exit_code == 1


def test_a_gradual_revive_needs_conditions_and_a_yes(store: Store, reader: Reader) -> None:
    make(store, JobState.DEAD)

    assert refusal("gradual-revives", "start", "--yes")["status"] == 2
    assert refusal("gradual-revives", "start", "--all")["status"] == 2
    assert refusal("gradual-revives", "start", "--all", "--every", "1ms", "--yes")["status"] == 2
    assert answer("gradual-revives", "list")["gradual_revives"] == []
    assert reader.search(JobQuery(states=(JobState.PENDING,))).jobs == ()
