"""Every command as a real program, one after the other, as an operator would use them."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.cli.main import main
from tests.cli.command_runner import DEADLINE, commands, ids, program, program_answer, working
from tests.cli.commands import test_init, test_run_server, test_schedules
from tests.cli.dev import test_command
from tests.importers.support import old_url


def json_of(folder: Path, *words: str) -> Any:
    return program_answer(folder, *words)


@pytest.mark.shows("R-CLI-01")
def test_a_worker_runs_what_was_enqueued_by_hand(app_folder: Path) -> None:
    good = json_of(app_folder, "enqueue", "tasks.greet", "Ada", "times:=2")
    bad = json_of(app_folder, "enqueue", "tasks.fail", "no luck")

    with working(app_folder, "tasks:app", "--queues", "mail,default", "--concurrency", "2"):
        [done] = json_of(app_folder, "jobs", "wait", good["id"], "--timeout", "100s")
        failed = program(app_folder, "jobs", "wait", bad["id"], "--timeout", "100s")
        [worker] = json_of(app_folder, "stats")["workers"]

    assert (done["state"], done["result"]) == ("completed", "Hello Ada! Hello Ada!")
    assert failed.returncode == 1
    assert "ValueError: no luck" in failed.stdout
    assert worker["queues"] == ["mail", "default"]
    assert json_of(app_folder, "stats")["workers"] == []


@pytest.mark.shows("R-CFG-68", "R-CLI-17", "R-CLI-18", "R-HIST-28")
def test_a_worker_takes_its_app_and_its_queues_from_the_settings(app_folder: Path) -> None:
    job = json_of(app_folder, "enqueue", "tasks.greet", "Ada")

    levels = "info,worker=debug,stores=debug"
    with working(
        app_folder,
        FOREBAY_QUEUES="mail",
        FOREBAY_THREADS="1",
        FOREBAY_LOG_FORMAT="json",
        FOREBAY_LOG_LEVEL=levels,
    ):
        [done] = json_of(app_folder, "jobs", "wait", job["id"], "--timeout", "100s")
        [worker] = json_of(app_folder, "stats")["workers"]

    assert done["result"] == "Hello Ada!"
    assert worker["queues"] == ["mail"]
    lines = [json.loads(line) for line in (app_folder / "worker.log").read_text().splitlines()]
    about_job = [line for line in lines if line.get("job_id") == job["id"]]
    # On a busy machine it may have been handed back and claimed again.
    assert {line["event"] for line in about_job} >= {
        "job %s is running now, attempt %s",
        "job %s is %s now, attempt %s: %s",
    }
    assert {(line["component"], line["queue"], line["worker_id"]) for line in about_job} == {
        ("worker", "mail", worker["id"])
    }
    assert any(line["message"].startswith("queue mail: asked for ") for line in lines)
    assert {"settle_and_claim", "renew"} & {line.get("call") for line in lines}
    assert {line.get("worker_id") for line in lines if line["message"].endswith(" has stopped")} == {
        worker["id"]
    }


def test_a_worker_without_an_app_says_where_to_name_one(folder: Path) -> None:
    result = program(folder, "worker")

    assert result.returncode == 2
    assert "Missing argument 'APP'. Name it as package.module:app, in FOREBAY_APP" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("nowhere:app",), "Error: there is no module 'nowhere' here or on the path"),
        (("tasks:app", "--queues", "a:b"), "Error: 'a:b' cannot name a queue"),
        (("tasks:app", "--threads", "many"), "'many' is not a valid integer"),
    ],
)
def test_a_worker_with_bad_input_does_not_start(
    words: tuple[str, ...], complaint: str, app_folder: Path
) -> None:
    result = program(app_folder, "worker", *words)

    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_a_worker_whose_store_cannot_be_opened_has_the_status_for_that(app_folder: Path) -> None:
    (app_folder / "jobs.db").write_text("this is no database, whatever its name says" * 50)

    result = program(app_folder, "worker")

    assert result.returncode == 3
    assert "is not a SQLite database" in result.stderr


def test_every_command_about_limits(app_folder: Path) -> None:
    assert json_of(app_folder, "limits", "set", "queue:mail", "--concurrency", "2")["concurrency"] == 2
    assert [limit["scope"] for limit in json_of(app_folder, "limits", "list")["limits"]] == ["queue:mail"]
    assert json_of(app_folder, "limits", "remove", "queue:mail")["removed"]


def test_every_command_about_keys(app_folder: Path) -> None:
    token = json_of(app_folder, "keys", "create", "shop", "--allow", "produce:mail")["token"]
    assert json_of(app_folder, "keys", "rotate", "shop")["token"] != token
    assert [key["name"] for key in json_of(app_folder, "keys", "list")["keys"]] == ["shop"]
    json_of(app_folder, "keys", "revoke", "shop", "--yes")
    assert json_of(app_folder, "keys", "show", "shop")["revoked_at"]
    assert len(json_of(app_folder, "audit", "--kind", "api_key_changed")["lines"]) == 3
    sent = json_of(app_folder, "audit", "export", "--once", "--to", "file:audit.jsonl")["sent"]
    assert json_of(app_folder, "audit", "verify", "--against", "audit.jsonl")["lines"] == sent


def test_every_command_about_sessions(app_folder: Path) -> None:
    json_of(app_folder, "migrate")
    assert json_of(app_folder, "sessions", "list") == {"sessions": []}
    assert json_of(app_folder, "sessions", "revoke", "--all", "--yes") == {"revoked": []}


def test_every_command_about_schedules(app_folder: Path) -> None:
    added = json_of(app_folder, "schedules", "add", "hello", "tasks.greet", "Ada", "--cron", "0 9 * * MON")

    assert added["when"] == "0 9 * * MON"
    assert [one["name"] for one in json_of(app_folder, "schedules", "list")["schedules"]] == ["hello"]
    assert json_of(app_folder, "schedules", "show", "hello")["args"] == ["Ada"]
    assert len(json_of(app_folder, "schedules", "next", "hello", "--runs", "3")["next_runs"]) == 3
    assert json_of(app_folder, "schedules", "pause", "hello")["is_paused"] is True
    assert json_of(app_folder, "schedules", "resume", "hello")["is_paused"] is False
    assert json_of(app_folder, "schedules", "update", "hello", "--every", "1h")["every_ms"] == 3_600_000
    fired = json_of(app_folder, "schedules", "fire", "hello")
    [line] = json_of(app_folder, "schedules", "history", "hello")["history"]
    assert (line["status"], line["job_id"]) == ("enqueued", fired["id"])
    assert json_of(app_folder, "schedules", "missed")["missed"] == 0
    assert json_of(app_folder, "schedules", "sync")["declared"] == []
    assert json_of(app_folder, "schedules", "remove", "hello", "--yes") == {"removed": "hello"}


def test_every_command_about_jobs(app_folder: Path) -> None:
    made = [json_of(app_folder, "enqueue", "tasks.greet", name)["id"] for name in ("Ada", "Grace", "Joan")]

    assert ids(json_of(app_folder, "jobs", "list")["jobs"]) == made[::-1]
    assert ids(json_of(app_folder, "jobs", "search", "Grace")["jobs"]) == [made[1]]
    assert json_of(app_folder, "jobs", "show", made[0])["timeline"][0]["what"] == "enqueued"
    assert json_of(app_folder, "jobs", "tree", made[0])["dependants"] == []
    assert json_of(app_folder, "jobs", "update", made[0], "--priority", "5")["updated"] is True
    assert json_of(app_folder, "jobs", "cancel", made[0], "--yes")["cancelled"] == 1
    assert json_of(app_folder, "jobs", "revive", made[0])["revived"] == 1
    assert json_of(app_folder, "jobs", "delete", made[0], "--yes")["deleted"] == 1
    assert program(app_folder, "jobs", "wait", made[1], "--timeout", "0").returncode == 6


@pytest.mark.shows("R-TEST-69")
def test_every_command_about_queues(app_folder: Path) -> None:
    assert json_of(app_folder, "queues", "create", "mail", "weight=2")["settings"]["weight"] == 2
    assert json_of(app_folder, "queues", "configure", "mail", "lease=1m")["settings"]["lease_ms"] == 60_000
    json_of(app_folder, "enqueue", "tasks.greet", "Ada")

    assert json_of(app_folder, "queues", "list")["queues"][0]["name"] == "mail"
    assert json_of(app_folder, "queues", "show", "mail")["length"] == 1
    assert json_of(app_folder, "inspect", "mail", "--limit", "10")["next"][0]["args"] == ["Ada"]
    assert json_of(app_folder, "queues", "pause", "mail")["state"] == "paused"
    assert json_of(app_folder, "queues", "resume", "mail")["state"] == "active"
    assert json_of(app_folder, "queues", "drain", "mail")["state"] == "draining"
    assert json_of(app_folder, "queues", "purge", "mail", "--yes") == {"deleted": 1}
    assert json_of(app_folder, "queues", "delete", "mail", "--yes")["deleted"] == "mail"


def test_every_command_about_alerts(app_folder: Path) -> None:
    rule = json_of(app_folder, "alerts", "set-rule", "any", "--condition", "queue_depth > 0")
    assert (rule["name"], rule["is_builtin"]) == ("any", False)
    json_of(app_folder, "enqueue", "tasks.greet", "Ada")
    assert len(json_of(app_folder, "alerts", "check")["alerts"]) == 1
    [alert] = json_of(app_folder, "alerts", "list", "--active")["alerts"]
    assert json_of(app_folder, "alerts", "ack", alert["id"])["acknowledged_at"] is not None
    assert json_of(app_folder, "alerts", "resolve", alert["id"])["is_active"] is False
    assert json_of(app_folder, "alerts", "trigger", "deploy", "It is late")["source"] == "manual"
    assert json_of(app_folder, "alerts", "remove-rule", "any", "--yes")["removed"] is True
    assert "queue_depth" in json_of(app_folder, "alerts", "rules")["metrics"]
    assert json_of(app_folder, "alerts", "webhook", "ops", "https://example.com/T")["url"].endswith("/***")
    json_of(app_folder, "alerts", "email", "post", "a@example.com", "--from", "f@example.com", "--host", "mx")
    assert [one["name"] for one in json_of(app_folder, "alerts", "channels")["channels"]] == ["ops", "post"]
    assert json_of(app_folder, "alerts", "remove-channel", "ops")["removed"] is True


def test_every_command_about_dead_letters(app_folder: Path) -> None:
    job = json_of(app_folder, "enqueue", "tasks.fail", "no luck")["id"]
    with working(app_folder):
        program(app_folder, "jobs", "wait", job, "--timeout", "100s")

    assert ids(json_of(app_folder, "dead", "list")["jobs"]) == [job]
    assert json_of(app_folder, "dead", "show", job)["attempts"][0]["error"]["message"] == "no luck"
    [group] = json_of(app_folder, "dead", "groups")["groups"]
    assert (group["message"], group["frames"]) == ("ValueError: no luck", ["tasks.py:fail"])
    assert "payload_base64" in json_of(app_folder, "dead", "payload", job)
    revive = json_of(app_folder, "gradual-revives", "start", "--group", group["id"], "--yes")["name"]
    assert json_of(app_folder, "gradual-revives", "pause", revive)["state"] == "paused"
    assert json_of(app_folder, "gradual-revives", "resume", revive)["state"] == "running"
    assert json_of(app_folder, "gradual-revives", "stop", revive)["state"] == "stopped"
    assert json_of(app_folder, "gradual-revives", "show", revive)["revived"] == 0
    assert len(json_of(app_folder, "gradual-revives", "list")["gradual_revives"]) == 1
    assert json_of(app_folder, "dead", "revive", job)["revived"] == 1
    assert json_of(app_folder, "dead", "purge", "--all", "--yes") == {"deleted": 0}


@pytest.mark.shows("R-WORK-05")
def test_every_command_about_workers(app_folder: Path) -> None:
    json_of(app_folder, "migrate")  # else there is no store to look at before the worker has made one
    with working(app_folder) as process:
        worker = the_worker(app_folder)
        assert json_of(app_folder, "workers", "show", worker)["id"] == worker
        assert "forebay-coordinator" in only_answer(json_of(app_folder, "workers", "stacks", worker))
        assert only_answer(json_of(app_folder, "workers", "pause", worker)).startswith("paused")
        assert only_answer(json_of(app_folder, "workers", "resume", worker)).startswith("resumed")
        assert only_answer(json_of(app_folder, "workers", "stop", worker)).startswith("stopping")
        process.wait(DEADLINE)
    with working(app_folder) as process:
        assert only_answer(json_of(app_folder, "workers", "drain", the_worker(app_folder))).startswith(
            "draining"
        )
        process.wait(DEADLINE)
    with working(app_folder) as process:
        assert only_answer(json_of(app_folder, "workers", "halt", the_worker(app_folder))).startswith(
            "halting"
        )
        process.wait(DEADLINE)


def the_worker(folder: Path) -> str:
    """The id of the one worker, as soon as it is on the list."""
    deadline = time.monotonic() + DEADLINE
    while not (found := json_of(folder, "workers", "list")["workers"]):
        assert time.monotonic() < deadline, (folder / "worker.log").read_text()
    [worker] = found
    return str(worker["id"])


def only_answer(answer: Any) -> str:
    [one] = answer["answers"]
    return str(one["answer"])


def test_every_command_about_moving_in(app_folder: Path) -> None:
    way = ("--from", old_url(), "--to", "sqlite:///jobs.db", "--workers-stopped")

    assert json_of(app_folder, "import", "celery", *way)["stored"] == 0
    assert json_of(app_folder, "import", "rq", *way)["stored"] == 0
    assert json_of(app_folder, "import", "huey", *way)["stored"] == 0


def test_every_other_command(app_folder: Path) -> None:
    assert json_of(app_folder, "migrate")["engine"] == "sqlite"
    assert json_of(app_folder, "stats")["total"]["total"] == 0
    assert json_of(app_folder, "top", "--once")["total"]["total"] == 0
    assert json_of(app_folder, "stuck")["jobs"] == []
    assert json_of(app_folder, "sweep", "--now") == {"swept": 0}
    assert (
        json_of(app_folder, "move", "--from", "sqlite:///jobs.db", "--to", "sqlite:///new.db")["moved"][
            "jobs"
        ]
        == 0
    )
    carried = ("--once", "--create", "--database", "sqlite:///shop.db")
    assert json_of(app_folder, "outbox", *carried) == {"stored": 0, "refused": 0}
    assert json_of(app_folder, "doctor")["is_well"] is True
    assert json_of(app_folder, "version")["packages"]["click"]
    assert program(app_folder, "completion", "bash").returncode == 0
    assert "forebay, version" in program(app_folder, "--version").stdout.replace(
        "python -m forebay", "forebay"
    )


# Every command, and the test that runs it as a real program and reads its JSON. The output of a worker is its
# log, and that of `completion` a script; a scheduler has something to say when it was stopped.
SHOWN: dict[str, Callable[..., object]] = {
    "init": test_init.test_a_worker_runs_the_tasks_that_were_written,
    "dev": test_command.Running,
    "worker": test_a_worker_runs_what_was_enqueued_by_hand,
    "enqueue": test_a_worker_runs_what_was_enqueued_by_hand,
    "jobs list": test_every_command_about_jobs,
    "jobs search": test_every_command_about_jobs,
    "jobs show": test_every_command_about_jobs,
    "jobs cancel": test_every_command_about_jobs,
    "jobs revive": test_every_command_about_jobs,
    "jobs delete": test_every_command_about_jobs,
    "jobs update": test_every_command_about_jobs,
    "jobs tree": test_every_command_about_jobs,
    "jobs wait": test_a_worker_runs_what_was_enqueued_by_hand,
    "limits list": test_every_command_about_limits,
    "limits set": test_every_command_about_limits,
    "limits remove": test_every_command_about_limits,
    "alerts list": test_every_command_about_alerts,
    "alerts ack": test_every_command_about_alerts,
    "alerts resolve": test_every_command_about_alerts,
    "alerts trigger": test_every_command_about_alerts,
    "alerts check": test_every_command_about_alerts,
    "alerts rules": test_every_command_about_alerts,
    "alerts set-rule": test_every_command_about_alerts,
    "alerts remove-rule": test_every_command_about_alerts,
    "alerts channels": test_every_command_about_alerts,
    "alerts webhook": test_every_command_about_alerts,
    "alerts email": test_every_command_about_alerts,
    "alerts remove-channel": test_every_command_about_alerts,
    "keys create": test_every_command_about_keys,
    "keys list": test_every_command_about_keys,
    "keys show": test_every_command_about_keys,
    "keys rotate": test_every_command_about_keys,
    "keys revoke": test_every_command_about_keys,
    "audit": test_every_command_about_keys,
    "audit verify": test_every_command_about_keys,
    "audit export": test_every_command_about_keys,
    "scheduler": test_schedules.test_a_scheduler_fires_until_it_is_told_to_stop,
    "outbox": test_every_other_command,
    "import celery": test_every_command_about_moving_in,
    "import rq": test_every_command_about_moving_in,
    "import huey": test_every_command_about_moving_in,
    "schedules list": test_every_command_about_schedules,
    "schedules show": test_every_command_about_schedules,
    "schedules history": test_every_command_about_schedules,
    "schedules missed": test_every_command_about_schedules,
    "schedules next": test_every_command_about_schedules,
    "schedules add": test_every_command_about_schedules,
    "schedules update": test_every_command_about_schedules,
    "schedules pause": test_every_command_about_schedules,
    "schedules resume": test_every_command_about_schedules,
    "schedules fire": test_every_command_about_schedules,
    "schedules remove": test_every_command_about_schedules,
    "schedules sync": test_every_command_about_schedules,
    "queues list": test_every_command_about_queues,
    "queues show": test_every_command_about_queues,
    "queues create": test_every_command_about_queues,
    "queues configure": test_every_command_about_queues,
    "queues pause": test_every_command_about_queues,
    "queues resume": test_every_command_about_queues,
    "queues drain": test_every_command_about_queues,
    "queues purge": test_every_command_about_queues,
    "queues delete": test_every_command_about_queues,
    "server": test_run_server.test_a_server_answers_until_it_is_told_to_stop,
    "dead list": test_every_command_about_dead_letters,
    "dead show": test_every_command_about_dead_letters,
    "dead revive": test_every_command_about_dead_letters,
    "dead purge": test_every_command_about_dead_letters,
    "dead groups": test_every_command_about_dead_letters,
    "dead payload": test_every_command_about_dead_letters,
    "gradual-revives start": test_every_command_about_dead_letters,
    "gradual-revives list": test_every_command_about_dead_letters,
    "gradual-revives show": test_every_command_about_dead_letters,
    "gradual-revives pause": test_every_command_about_dead_letters,
    "gradual-revives resume": test_every_command_about_dead_letters,
    "gradual-revives stop": test_every_command_about_dead_letters,
    "workers list": the_worker,
    "workers show": test_every_command_about_workers,
    "workers pause": test_every_command_about_workers,
    "workers resume": test_every_command_about_workers,
    "workers stop": test_every_command_about_workers,
    "workers drain": test_every_command_about_workers,
    "workers halt": test_every_command_about_workers,
    "workers stacks": test_every_command_about_workers,
    "sessions list": test_every_command_about_sessions,
    "sessions revoke": test_every_command_about_sessions,
    "stats": test_every_other_command,
    "top": test_every_other_command,
    "inspect": test_every_command_about_queues,
    "stuck": test_every_other_command,
    "sweep": test_every_other_command,
    "migrate": test_every_other_command,
    "move": test_every_other_command,
    "doctor": test_every_other_command,
    "completion": test_every_other_command,
    "version": test_every_other_command,
}
WITHOUT_JSON = {
    "worker": "working(app_folder,",
    "completion": 'program(app_folder, "completion",',
    "scheduler": 'command("scheduler",',
    "server": 'command("server",',
    "dev": 'command("dev",',
}


def test_the_list_names_every_command() -> None:
    assert sorted(SHOWN) == sorted(commands(main))


@pytest.mark.parametrize("name", SHOWN)
def test_every_command_is_run_as_a_program_by_its_test(name: str) -> None:
    words = ", ".join(f'"{word}"' for word in name.split())

    source = inspect.getsource(SHOWN[name]).replace("json_of(folder,", "json_of(app_folder,")
    assert WITHOUT_JSON.get(name, f"json_of(app_folder, {words}") in source
