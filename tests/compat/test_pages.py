"""The pages about the facades, and the table of words: what they say is so."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay import ConfigError, Forebay, JobHandle, RetryPolicy, errors
from forebay.app.alerts import Alerts
from forebay.app.consumer import Consumer
from forebay.app.schedules import Schedules
from forebay.app.task import ConfiguredTask
from forebay.compat.task_queue.job_records import ArchivedJob, JobResult
from forebay.compat.task_queue.queue import PriorityLevel, TaskQueue
from forebay.compat.task_service import task as task_module
from forebay.compat.task_service.service import TaskService
from forebay.compat.task_service.task import ServiceTask
from forebay.compat.work_queue.queue import WorkQueue
from forebay.compat.work_queue.task import STATES, STATUSES, WorkTask
from forebay.domain.job import Job
from forebay.domain.job_states import JobState, Status, parse_state, status_of
from forebay.domain.queue import QueueSettings
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# What the table of words may name.
OURS: dict[str, Any] = {
    "Task": ConfiguredTask,  # a task has the methods of its calls
    "Level": PriorityLevel,
    **{
        kind.__name__: kind
        for kind in (
            *(Consumer, Forebay, Job, JobHandle, QueueSettings, Reader, RetryPolicy, Store),
            *(Alerts, Schedules, TaskQueue, TaskService, WorkQueue, errors.Discard, errors.Retry),
        )
    },
}


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """The cells of all tables."""
    lines = [line for line in text(page).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("page", ["guide/task-queue.md", "guide/task-service.md", "guide/work-queue.md"])
def test_the_examples_of_a_page_are_a_program_that_prints_what_it_promises(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall(text(page))
    program, promised = (
        "\n\n".join(body for found, body in blocks if found == language) for language in ("python", "")
    )
    (tmp_path / "jobs.py").write_text(program)

    answer = subprocess.run(
        [sys.executable, "jobs.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert (answer.stdout.split(), answer.stderr) == (promised.split(), "")


@pytest.mark.parametrize(
    ("page", "facade"),
    [
        ("guide/task-queue.md", TaskQueue),
        ("guide/task-service.md", TaskService),
        ("guide/work-queue.md", WorkQueue),
    ],
)
def test_a_page_names_every_method_and_every_setting(page: str, facade: type) -> None:
    methods = [name for name in vars(facade) if not name.startswith("_")]
    settings = [name for name in inspect.signature(facade).parameters if name != "clock"]

    assert [name for name in methods if name not in text(page)] == []
    assert [name for name in settings if f"| `{name}` |" not in text(page)] == []


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("guide/task-queue.md", JobResult),
        ("guide/task-queue.md", ArchivedJob),
        ("guide/task-service.md", ServiceTask),
        ("guide/work-queue.md", WorkTask),
    ],
)
def test_a_page_names_every_field(page: str, kind: type[msgspec.Struct]) -> None:
    fields = set(kind.__struct_fields__) - {"lease"}

    assert [name for name in sorted(fields) if name not in text(page)] == []


@pytest.mark.shows("R-SDK-18", "R-JOB-60", "R-STORE-22", "R-EDGE-46")
def test_the_page_says_what_a_user_of_an_embedded_queue_has_to_know() -> None:
    page = " ".join(text("guide/task-queue.md").split())

    for words in (
        "**At least once.**",
        "idempotent: running one twice must do no harm",
        "One that hangs in C code goes on in an abandoned thread until its call returns.",
        "A running job of low priority is not interrupted",
        "not over a network drive; one of them writes at a time",
        "source.backup(copy)",
    ):
        assert words in page


# The table of words


@pytest.mark.shows("R-JOB-43", "R-JOB-38", "R-JOB-39", "R-JOB-41", "R-JOB-42")
def test_the_table_of_states_is_what_the_code_does() -> None:
    table = {row[0].strip("`"): row[1:] for row in rows("internals/source-designs.md") if len(row) == 6}
    table.pop("ours")

    assert list(table) == list(JobState)
    for state in JobState:
        embedded, service, _, row, task = table[state]
        assert embedded == status_of(state)
        assert service == task_module.STATUSES[state]
        assert task == STATES[state]
        assert row == STATUSES[STATES[state]]


@pytest.mark.shows("R-JOB-40", "R-JOB-43")
def test_the_words_of_others_are_understood_where_a_state_is_typed() -> None:
    words = {
        (word, row[0].strip("`"))
        for row in rows("internals/source-designs.md")
        if len(row) == 6 and row[0] != "ours"
        for word in row[1:]
    }
    # One word for several states of ours means the plain one; a failed job may be retried or not. The page
    # names these words.
    states = {
        word.lower(): {state for other, state in words if other.lower() == word.lower()} for word, _ in words
    }
    several = {word for word, meant in states.items() if len(meant) > 1}
    plain = {(word, state) for word, state in words if word.lower() not in several}

    assert several == {"pending", "queued", "failed"}
    assert {(word, parse_state(word)) for word, _ in plain} == plain
    assert parse_state("PENDING") is parse_state("queued") is JobState.PENDING
    with pytest.raises(ConfigError, match="'FAILED' is not a job state"):
        parse_state("FAILED")
    assert {state for state in JobState if status_of(state) is Status.FAILED} == {
        *(JobState.RETRYING, JobState.DEAD)
    }


@pytest.mark.shows("R-SDK-08", "R-SDK-09", "R-SDK-10", "R-SDK-11")
def test_every_name_of_the_processor_has_one_of_ours() -> None:
    theirs = {name for row in rows("internals/source-designs.md") for name in re.findall(r"`(\w+)`", row[0])}

    assert theirs >= {
        *("enqueue", "enqueue_job", "bulk_enqueue", "queue_stats", "get_queue_length", "peek", "peek_queue"),
        *("list_queues", "delete_job", "get_job_by_id", "validate_job"),
        *("handle_job_failure", "schedule_retry", "get_due_retries", "move_to_dead_letter"),
        *("get_dead_letter_jobs", "retry_dead_letter_job", "purge_dead_letter_jobs", "get_retry_stats"),
        *("cleanup_expired_retries", "calculate_delay"),
        *("schedule_delayed_job", "schedule", "schedule_recurring_job", "schedule_cron", "unschedule_job"),
        *("pause_schedule", "resume_schedule", "get_schedule", "list_schedules", "update_schedule"),
        *("enqueue_due_jobs", "calculate_next_runs_for_all_schedules", "start", "stop"),
        *("get_system_metrics", "get_queue_metrics", "get_worker_status", "get_job_history", "search_jobs"),
        *("get_alerts", "acknowledge_alert", "create_alert_rule", "trigger_alert"),
    }


def test_every_name_of_ours_in_the_table_exists() -> None:
    page = text("internals/source-designs.md")
    members = re.findall(r"`([A-Z]\w+)\.(\w+)`", page)

    assert len(members) > 50
    assert [f"{kind}.{name}" for kind, name in members if not _has(OURS[kind], name)] == []
    commands = set(re.findall(r"`(forebay \w+ \w+)", page))
    assert [command for command in commands if command not in text("reference/command-line.md")] == []


def _has(kind: Any, name: str) -> bool:
    return hasattr(kind, name) or name in getattr(kind, "__struct_fields__", ())
