"""Locks that a task thread may take are taken in `uninterrupted` regions of `forebay.deferred_interrupts`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "src" / "forebay"
LOCKS: Final = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
# Objects whose `acquire` is no lock of threads: it answers at once and blocks no caller.
NO_LOCKS: Final = {
    "assignment": "the right to start a job, taken from a list",
    "_worker_locks": "file locks by which other processes see that a worker lives",
}
# Paths, or folders, whose locks no interrupted thread takes outside of a region; each with its reason.
EXEMPT: Final = {
    "cli": "its commands run on threads of their own",
    "service": "its threads run no tasks",
    "stores/memory": "handles are used in regions of the client, the consumer and the worker's notes",
    "stores/remote": "as the memory store",
    "testing/trial_worker.py": "the test's own thread runs the tasks, and is not interrupted",
    "app/durable_steps.py": "a lock that a task only waits for, in slices, and never gives back",
    "worker/coordinator_inbox.py": "a lock that a task only releases",
    "worker/lease_renewal_health.py": "used by the supervisor and the renewal thread",
    "worker/supervisor/channel.py": "used by the supervisor's threads",
    "worker/supervisor/supervised_renewal.py": "used by the threads of a supervised worker",
    "worker/executors/process_attempt.py": "used by the threads that attend to isolated processes",
    "worker/executors/interruptible_thread.py": "taken by a hidden thread, and by the one that interrupts",
    "worker/executors/thread_executor.py": "the executor itself, which gives its reasons there",
    "worker/executors/child_connection.py": "no interrupt is raised while the line is busy",
    "compat/task_queue/queue.py": "closing a queue waits for its tasks, so none of them can do it",
}


def test_locks_that_tasks_can_reach_are_taken_in_uninterrupted_regions() -> None:
    assert [found for path in _reachable() for found in _bare(path)] == []


def test_every_exemption_names_a_place_that_there_is() -> None:
    assert [name for name in EXEMPT if not (PACKAGE / name).exists()] == []


def test_a_lock_without_a_region_is_found() -> None:
    source = """
class Counter:
    def __init__(self):
        self._lock = Lock()
    def right(self):
        with uninterrupted, self._lock:
            self.inner()
        with uninterrupted:
            with self._lock:
                pass
    @uninterrupted
    def decorated(self):
        with self._lock:
            pass
    def wrong(self):
        with self._lock:
            pass
        with self._lock, uninterrupted:
            pass
        self._lock.acquire()
"""
    assert [line for line, _ in _bare_in(ast.parse(source))] == [16, 18, 20]


def _reachable() -> Iterator[Path]:
    exempt = {path for name in EXEMPT for path in _in(name)}
    return (path for path in sorted(PACKAGE.rglob("*.py")) if path not in exempt)


def _in(name: str) -> list[Path]:
    place = PACKAGE / name
    return [place] if place.suffix else sorted(place.rglob("*.py"))


def _bare(path: Path) -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}:{line} {lock}" for line, lock in _bare_in(ast.parse(path.read_text()))
    ]


def _bare_in(tree: ast.Module) -> list[tuple[int, str]]:
    return sorted(_look(tree, _locks(tree), is_inside=False))


def _locks(tree: ast.Module) -> set[str]:
    """The names that are given locks in a module."""
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Assign, ast.AnnAssign))
            and node.value is not None
            and _makes_lock(node.value)
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {_name(target) for target in targets}
    return found


def _makes_lock(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _name(value.func) in LOCKS


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _look(node: ast.AST, locks: set[str], *, is_inside: bool) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.FunctionDef):
        is_inside = any(_name(one) == "uninterrupted" for one in node.decorator_list)
        # Begins a region by hand, for a fork.
        is_inside |= "uninterrupted.__enter__()" in ast.unparse(node)
    if isinstance(node, ast.With):
        for item in node.items:
            name = _name(item.context_expr)
            is_inside |= name == "uninterrupted"
            if name in locks and not is_inside:
                yield node.lineno, name
    if isinstance(node, ast.Attribute) and node.attr == "acquire" and not is_inside:
        yield from ((node.lineno, name) for name in [_name(node.value)] if name not in NO_LOCKS)
    for child in ast.iter_child_nodes(node):
        yield from _look(child, locks, is_inside=is_inside)
