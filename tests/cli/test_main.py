"""The tree as a whole: quick help, statuses that mean something, errors in one sentence."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

from forebay.cli.commands.queues import setting_names
from forebay.cli.errors import ExitStatus
from forebay.cli.main import COMMANDS, main
from forebay.domain.job_states import JobState
from forebay.domain.retry_policy import PRESETS
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, commands, environment, program, put, refusal

DOCS = Path(__file__).parents[2] / "docs"
WRITE_ONE = "write `app = Forebay(...)` into json, and name it as json:app"
HEAVY = ["asyncio", "forebay.worker.worker", "rich", "sqlite3", "tomllib"]


ALL = commands(main)


def test_the_help_imports_no_command() -> None:
    script = (
        "import sys\nfrom forebay.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(done.stderr.split())
    assert "Commands:" in done.stdout
    assert [name for name in HEAVY if name in loaded] == []
    assert not any(target.partition(":")[0] in loaded for target, _ in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_one_line_in_the_help_is_the_command_s_own(name: str) -> None:
    command = main.get_command(click.Context(main), name)

    assert command is not None
    if name != "worker":  # whose own first line speaks of its argument
        assert command.get_short_help_str(200) == COMMANDS[name][1]


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_answers_to_programs(name: str) -> None:
    result = call(*name.split(), "--help")

    assert result.exit_code == 0
    assert ALL[name].help
    options = {option for param in ALL[name].params for option in param.opts}
    # The output of a worker is its log, and that of `completion` a script.
    assert "--json" in options or name in ("worker", "completion")


def help_text(name: str) -> str:
    return " ".join(call(*name.split(), "--help").stdout.split())


def test_the_help_lists_the_words_that_an_option_takes() -> None:
    assert all(state in help_text("jobs list").partition("--state")[2] for state in JobState)
    assert all(preset in help_text("enqueue").partition("--retry-policy ")[2] for preset in PRESETS)
    for name in ("queues create", "queues configure"):
        # A long list may be broken behind an underscore or not at all.
        assert [word for word in setting_names() if word not in help_text(name)] == []
    assert "mail:3,reports:1. Without a weight, the queue's own weight counts;" in help_text("worker")


def test_the_reference_names_every_command_and_every_option() -> None:
    page = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")

    assert [name for name in ALL if f"`forebay {name}`" not in page] == []
    options = {
        option
        for command in ALL.values()
        for param in command.params
        for option in param.opts
        if "--" in option and not getattr(param, "hidden", False)
    }
    assert [option for option in sorted(options) if f"`{option}" not in page] == []


def test_the_reference_names_every_status() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")

    assert [status for status in ExitStatus if f"| {status.value} |" not in page] == []


def test_an_unknown_command_is_bad_input() -> None:
    result = call("jbos")

    assert result.exit_code == 2
    assert "No such command 'jbos'" in result.stderr
    assert "jobs" in result.stderr.partition("jbos")[2]
    nested = call("queues", "lsit").stderr.partition("lsit")[2]
    assert "list" in nested
    assert nested.count("Did you mean") == 1
    assert "--help" in call("quux-quux").stderr


def test_a_name_that_is_near_to_another_is_guessed(store: Store) -> None:
    store.save_queue("mail")  # type: ignore[arg-type]

    assert refusal("queues", "show", "mial")["message"] == "there is no queue mial; did you mean mail?"
    assert (
        refusal("jobs", "list", "--queue", "Mail")["message"] == "there is no queue Mail; did you mean mail?"
    )
    far = refusal("queues", "show", "quux")["message"]
    assert far == "there is no queue quux; `forebay queues list` lists the queues"


def test_words_that_do_not_fit_are_an_object_for_programs() -> None:
    error = refusal("jobs", "show")

    assert error == {"kind": "UsageError", "message": "Missing argument 'ID'.", "status": 2}


def test_a_store_that_is_not_there_is_not_created_by_looking(folder: Path) -> None:
    error = refusal("jobs", "list", "--url", "sqlite:///typo.db")

    assert (error["kind"], error["status"]) == ("StoreUnusable", 3)
    assert error["message"] == "there is no store at sqlite:///typo.db; `forebay migrate` creates it"
    assert list(folder.iterdir()) == []


def test_without_any_setting_the_ways_to_name_a_store_are_named() -> None:
    error = refusal("stats")

    assert error["status"] == 3
    assert "give --url or --app, set FOREBAY_URL or FOREBAY_APP" in error["message"]


@pytest.mark.parametrize("name", ["a file.db", "nowhere/jobs.db"])
def test_a_store_that_cannot_be_opened_has_a_status_of_its_own(name: str, folder: Path) -> None:
    (folder / "a file.db").write_text("this is no database, and long enough to be seen as none" * 20)

    error = refusal("migrate", "--url", f"sqlite:///{name}")

    assert error["status"] == 3
    assert name in error["message"]


def test_a_store_that_another_program_has_locked_is_not_reachable_and_nothing_is_stored(
    store: Store, folder: Path
) -> None:
    with closing(sqlite3.connect(folder / "jobs.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        error = refusal("enqueue", "t", "--url", "sqlite:///jobs.db?lock_timeout=0")

    assert (error["kind"], error["status"]) == ("StoreLocked", 3)
    assert "locked" in error["message"]
    assert answer("stats")["total"]["total"] == 0


@pytest.mark.parametrize("url", ["nonsense", "", "sqlite://[x", "sqlite:///a%00b", "sqlite:///"])
@pytest.mark.parametrize("command", ["migrate", "stats"])
def test_an_address_that_cannot_be_is_bad_input(command: str, url: str) -> None:
    assert refusal(command, "--url", url)["status"] == 2


def test_an_address_that_cannot_be_is_said_by_the_doctor_of_an_app(app_folder: Path) -> None:
    result = program(app_folder, "doctor", "--url", "sqlite:///a%00b")

    assert result.returncode == 2
    assert "PROBLEM  store: " in result.stdout
    assert result.stderr == ""


def test_a_store_in_memory_cannot_be_seen_by_a_command() -> None:
    error = refusal("stats", "--url", "memory://")

    assert error["status"] == 2
    assert "lives inside one program" in error["message"]


@pytest.mark.parametrize("words", [("stats",), ("doctor",), ("enqueue", "t"), ("queues", "create", "q")])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_no_password_is_shown(words: tuple[str, ...], more: tuple[str, ...]) -> None:
    result = call(*words, "--url", "postgresql://me:pa/s@cret@host/db?password=other", *more)

    assert result.exit_code == 2
    assert "cret" not in result.output
    assert "other" not in result.output
    assert "me:***@host" in result.output


@pytest.mark.parametrize("words", [("stats",), ("doctor",), ("enqueue", "t"), ("migrate",)])
@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("me:hunter2@host/db", "me:***@host/db"),
        ("me:a://hunter2@host/db", "me:***@host/db"),
        ("postgresql:/me:hunter2@host", "postgresql:***@host"),
        ("postgresql://me:hun ter2@host", "postgresql://me:***@host"),
        ("postgresql://host/db?api_key=hunter2", "postgresql://host/db?api_key=***"),
        ("sqlite:///jobs.db?ssl_passphrase=hunter2", "sqlite:///jobs.db?ssl_passphrase=***"),
    ],
)
def test_no_password_is_shown_of_an_address_that_is_none(
    url: str, shown: str, words: tuple[str, ...], more: tuple[str, ...]
) -> None:
    result = call(*words, "--url", url, *more)

    assert result.exit_code == 2
    assert "ter2" not in result.output
    assert shown in result.output


def test_an_app_that_cannot_be_imported_shows_where_and_no_password(folder: Path) -> None:
    (folder / "broken.py").write_text('url = "postgresql://me:secret@host"; raise RuntimeError(url)\n')

    result = program(folder, "stats", "--app", "broken:app")

    assert result.returncode == 2
    assert 'broken.py", line 1' in result.stderr
    assert "Error: broken could not be imported: RuntimeError: postgresql://me:***@host" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        (
            "nowhere:app",
            "there is no module 'nowhere' here or on the path; go to the folder of nowhere.py, or "
            "install the package that has it",
        ),
        ("task:app", "there is no module 'task' here or on the path; did you mean tasks?"),
        ("shop.jobs:app", "there is no module 'shop.jobs' here or on the path; did you mean shops?"),
        ("tasks:ap", "there is no 'ap' in tasks; did you mean tasks:app?"),
        ("json", "'json' does not name an app; write package.module:app"),
        (".json:x", "'.json:x' does not name an app; write package.module:app"),
        ("json:app", f"there is no 'app' in json; {WRITE_ONE}"),
        ("json:loads", f"json:loads is a function, not a Forebay app; {WRITE_ONE}"),
    ],
)
def test_a_wrong_app_is_bad_input(named: str, complaint: str, app_folder: Path) -> None:
    (app_folder / "shops").mkdir()
    (app_folder / "shops" / "__init__.py").touch()

    error = refusal("stats", "--app", named)

    assert (error["status"], error["message"]) == (2, complaint)


def test_wrong_settings_are_bad_input(folder: Path) -> None:
    (folder / "forebay.toml").write_text("nonsense = 1")

    assert refusal("stats")["message"].startswith("forebay.toml: there is no setting 'nonsense'")


def test_a_file_of_settings_can_be_named(folder: Path, store: Store) -> None:
    (folder / "other.toml").write_text('url = "sqlite:///elsewhere.db"')

    result = call("--config", "other.toml", "stats")

    assert result.exit_code == 3
    assert "elsewhere.db" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_taught_to_complete(shell: str) -> None:
    result = call("completion", shell)

    assert result.exit_code == 0
    assert "_FOREBAY_COMPLETE" in result.stdout


def completed(folder: Path, line: str) -> list[str]:
    """What a bash with our script offers at the end of a line."""
    words = line.split(" ")
    variables = {"_FOREBAY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    script = "from forebay.cli.main import main; main(prog_name='forebay')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    return [word.partition(",")[2] for word in done.stdout.split()]


def test_commands_states_and_queues_are_completed(folder: Path, store: Store) -> None:
    store.save_queue("mail")  # type: ignore[arg-type]

    assert completed(folder, "forebay que") == ["queues"]
    assert completed(folder, "forebay jobs list --state pe") == ["pending"]
    assert completed(folder, "forebay queues show m") == ["mail"]
    assert completed(folder, "forebay jobs list --queue m") == ["mail"]


def test_tasks_are_completed_from_the_newest_jobs(folder: Path, store: Store) -> None:
    for task in ("shop.send", "shop.pay", "shop.send"):
        put(store, task=task)

    assert completed(folder, "forebay enqueue sh") == ["shop.pay", "shop.send"]
    assert completed(folder, "forebay jobs list --task shop.s") == ["shop.send"]
    assert completed(folder, "forebay top --sort pe") == ["pending"]


def test_completion_without_a_store_offers_no_queues(folder: Path) -> None:
    assert completed(folder, "forebay queues show m") == []


def test_a_reader_that_goes_away_ends_the_list_quietly(folder: Path, store: Store) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", "stats", "--json"],
            cwd=folder,
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)

    assert done.stderr == ""


def test_errors_for_programs_go_to_standard_error_alone(folder: Path, store: Store) -> None:
    result = program(folder, "jobs", "show", "absent", "--json")

    assert result.stdout == ""
    assert json.loads(result.stderr) == {
        "error": {
            "kind": "JobNotFound",
            "message": "there is no job absent; it may have been pruned",
            "status": 4,
        }
    }
