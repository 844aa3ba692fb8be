"""`make bench WHAT=profile` sorts what it sees into the right stages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.profile import ENQUEUE, IDLE, WORKER, sorted_out
from forebay.stores.postgres import prepared_statement
from forebay.stores.sqlite import connection, transaction
from forebay.worker import coordinator_inbox, task_invoker
from forebay.worker.executors import thread_executor

TASK = "thread (2): forebay-task-0"
SETTLE_AND_CLAIM = "settle_and_claim (forebay/stores/redis/settle_and_claim.py:1)"
WORKING = "thread (1): forebay-coordinator;Coordinator.tick (forebay/worker/coordinator.py:1)"


def test_stacks_become_shares_of_the_looks() -> None:
    stacks = [
        f"{TASK};ThreadExecutor._work_until_touched (forebay/worker/executors/thread_executor.py:1) 6",
        f"{TASK};Invoker.prepare (forebay/worker/task_invoker.py:9);_parse (forebay/payload/codec.py:2) 4",
        f"{WORKING};{SETTLE_AND_CLAIM};_HiredisParser.read_from_socket (redis/a.py:1) 5",
        f"{WORKING};{SETTLE_AND_CLAIM} 3",
        f"{WORKING} 2",
    ]

    assert sorted_out(stacks, WORKER) == {
        "decode the arguments": 0.4,
        "settle and claim: the engine": 0.5,
        "settle and claim: our requests and rows": 0.3,
        "hand out, take back, count": 0.2,
    }


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (thread_executor, ["_work_until_touched"]),
        (coordinator_inbox, ["WakeSignal", "wait"]),
        (task_invoker, ["prepare", "make_outcome", "_outcome_of_value"]),
        (prepared_statement, ["PreparedStatement", "_send_and_fetch"]),
        (transaction, ["all", "one", "run", "run_rows"]),
        (connection, ["write", "_begin", "execute"]),
    ],
)
def test_the_functions_that_tell_stages_are_still_there(module: object, names: list[str]) -> None:
    source = Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")

    for name in names:
        assert re.search(rf"(def|class) {name}\b", source), name
        assert any(name in pattern for pattern in [*WORKER.values(), *ENQUEUE.values()]), name
    assert IDLE in WORKER
