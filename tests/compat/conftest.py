"""Queues on a file of their own, by the clock that a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from forebay.compat.task_queue.queue import TaskQueue
from tests.compat import calls

MakeQueue = Callable[..., TaskQueue]


@pytest.fixture
def key(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for what this test's functions note; a call that still waits at its barrier is let go at the
    end."""
    name = request.node.nodeid
    yield name
    calls.opened[name].set()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taskqueue.db"


@pytest.fixture
def make_queue(file: Path, key: str) -> Iterator[MakeQueue]:
    """Makes queues on the test's file; they are closed at the end, in order."""
    with ExitStack() as stack:

        def make(**settings: Any) -> TaskQueue:
            return stack.enter_context(TaskQueue(file, **settings))

        stack.callback(calls.opened[key].set)
        yield make
        calls.opened[key].set()


@pytest.fixture
def queue(make_queue: MakeQueue) -> TaskQueue:
    """A queue with workers, by the machine's clock."""
    return make_queue(num_workers=2)


@pytest.fixture
def idle(make_queue: MakeQueue) -> TaskQueue:
    """A queue that no worker serves: what is submitted stays as it is."""
    return make_queue(num_workers=0)
