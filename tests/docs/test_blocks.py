"""Every block of code in the documents is run, here or by the test that is named here."""

from __future__ import annotations

import ast
import re
import shlex
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.cli.settings import read_settings
from forebay.payload.codec import encode_call
from tests.docs.pages import DEADLINE, ROOT, blocks, fenced, pages, run, run_page, text, whole
from tests.service.node import node

# Pages whose Python blocks are one program that prints what the blocks without a language show. Their
# console blocks are commands that are given afterwards.
PROGRAMS: Final = (
    "README.md",
    "guide/alerts.md",
    "guide/back-pressure.md",
    "guide/dead-letters.md",
    "guide/encryption.md",
    "guide/fairness.md",
    "guide/frameworks.md",
    "guide/limits.md",
    "guide/logging.md",
    "guide/metrics.md",
    "guide/priorities.md",
    "guide/retries.md",
    "guide/schedules.md",
    "guide/sqlite.md",
    "guide/tasks.md",
    "guide/tracing.md",
    "guide/workflows.md",
    "reference/api.md",
)
# Run by a test below.
HERE: Final = {
    ("guide/security.md", "python"),
    ("reference/payloads.md", "javascript"),
    ("reference/payloads.md", "python"),
    ("reference/payloads.md", "sql"),
    ("reference/settings.md", "toml"),
    *((page, language) for page in PROGRAMS for language in ("python", "console")),
}
# Run by tests of the parts they speak of.
ELSEWHERE: Final = {
    (
        "../README.md",
        "python",
    ): "app/test_quickstart.py::test_the_example_of_the_readme_prints_what_it_promises",
    (
        "quickstart.md",
        "python",
    ): "app/test_quickstart.py::test_the_first_program_prints_what_the_page_promises",
    ("quickstart.md", "console"): "app/test_quickstart.py::test_the_commands_that_look_around_work",
    ("guide/enqueue.md", "python"): (
        "app/test_quickstart.py::test_the_examples_of_the_page_about_enqueueing_are_a_program_that_runs"
    ),
    ("guide/consumer.md", "python"): (
        "app/test_quickstart.py::test_the_examples_of_the_page_about_consumers_are_a_program_that_runs"
    ),
    ("guide/workers.md", "python"): (
        "worker/test_guide.py::test_the_program_of_the_page_runs_in_an_empty_folder"
    ),
    ("guide/operating-workers.md", "python"): (
        "worker/test_guide.py::test_the_program_of_the_page_about_control_runs_in_an_empty_folder"
    ),
    ("guide/executors.md", "python"): (
        "worker/test_guide.py::test_the_program_of_the_page_about_executors_runs_in_an_empty_folder"
    ),
    **{
        (page, "python"): (
            "compat/test_pages.py::test_the_examples_of_a_page_are_a_program_that_prints_what_it_promises"
        )
        for page in ("guide/task-queue.md", "guide/task-service.md", "guide/work-queue.md")
    },
    **{
        ("guide/command-line.md", language): (
            "cli/test_docs.py::test_the_commands_of_the_guide_work_in_their_order"
        )
        for language in ("python", "toml", "console")
    },
    **{
        ("guide/grpc.md", language): (
            "service/test_guide.py::test_the_program_of_the_page_about_grpc_prints_what_it_promises"
        )
        for language in ("python", "console")
    },
    ("guide/security.md", "console"): (
        "cli/test_docs.py::test_the_commands_of_the_page_about_security_work_in_their_order"
    ),
    ("guide/postgresql.md", "python"): (
        "stores/test_postgres_guide.py::test_the_program_of_the_page_runs_against_a_server"
    ),
    **{
        ("guide/service.md", language): (
            "service/test_guide.py::test_the_commands_of_the_page_produce_and_consume_a_job"
        )
        for language in ("console", "sh")
    },
    **{
        ("guide/remote.md", language): (
            "end_to_end/test_remote.py::test_the_programs_of_the_page_work_over_the_service"
        )
        for language in ("python", "console")
    },
    **{
        ("guide/importing.md", language): (
            "importers/test_guide.py::test_a_backlog_of_celery_comes_over_as_the_page_says"
        )
        for language in ("python", "console")
    },
    ("guide/redis.md", "python"): (
        "stores/test_redis_guide.py::test_the_program_of_the_page_runs_against_a_server"
    ),
    **{
        ("guide/testing.md", language): (
            "testing/test_guide.py::test_the_files_of_the_page_are_tests_of_which_one_fails_as_it_says"
        )
        for language in ("python", "toml")
    },
    **{
        ("tutorials/first-app.md", language): (
            "docs/test_first_app.py::test_the_first_app_does_what_its_page_says"
        )
        for language in ("python", "toml", "sh")
    },
    ("troubleshooting.md", "console"): (
        "docs/test_troubleshooting.py::test_every_command_of_the_page_about_troubles_answers"
    ),
    ("troubleshooting.md", "sql"): (
        "stores/test_postgres_guide.py::test_the_statement_of_the_page_about_troubles_finds_open_transactions"
    ),
    **{
        ("tutorials/fastapi.md", language): (
            "docs/test_tutorials.py::test_the_tutorial_for_fastapi_works_as_it_is_written"
        )
        for language in ("python", "console")
    },
    **{
        ("tutorials/django.md", language): (
            "docs/test_tutorials.py::test_the_tutorial_for_django_works_as_it_is_written"
        )
        for language in ("python", "console")
    },
    ("guide/transactions.md", "python"): (
        "stores/test_postgres_guide.py::test_the_program_of_the_page_about_transactions_runs"
    ),
    ("guide/postgresql.md", "sql"): (
        "stores/test_postgres_guide.py::test_the_rights_of_the_page_are_enough_and_no_more"
    ),
    ("guide/workers.md", "ini"): (
        "docs/test_commands.py::test_the_unit_for_systemd_starts_a_worker_and_leaves_it_time_to_stop"
    ),
    ("internals/states.md", "mermaid"): (
        "house/test_states_diagram.py::test_the_diagram_draws_every_legal_move_and_no_other"
    ),
}
# Not run, with the reason.
EXEMPT: Final[dict[tuple[str, str], str]] = {}


# What a program in JavaScript does with the reader of the page.
LOOK: Final = """
import { readFileSync } from "node:fs";

const { args, kwargs } = readCall(readFileSync("call.bin"));
console.log(`${args[0]} ${args[1]} ${[...args[2]].sort()} ${args[3].toISOString()}`);
console.log(JSON.stringify(kwargs));
try {
  readCall(readFileSync("call.spoilt"));
} catch (error) {
  console.log(error.message);
}
"""


def found() -> set[tuple[str, str]]:
    """The pages and the languages of their blocks; those without a language are output."""
    return {(page, block.language) for page in pages() for block in fenced(text(page)) if block.language}


def test_every_block_has_a_test_that_runs_it_or_a_reason() -> None:
    assert sorted(found() - HERE - ELSEWHERE.keys() - EXEMPT.keys()) == []


def test_every_test_and_every_reason_is_for_a_block_that_exists() -> None:
    assert sorted((ELSEWHERE.keys() | EXEMPT.keys()) - found()) == []
    assert [page for page in PROGRAMS if (page, "python") not in found()] == []


@pytest.mark.parametrize(("page", "name"), sorted((page, name) for (page, _), name in ELSEWHERE.items()))
def test_a_test_that_is_named_exists_and_reads_the_page(page: str, name: str) -> None:
    file, _, function = name.partition("::")
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")

    assert function in [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert page.rpartition("/")[2] in source


def test_make_docs_runs_every_test_that_is_named() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [files] = re.findall(
        r"^PAGE_TESTS := \$\(addprefix tests/,(.*?)\)", makefile, flags=re.MULTILINE | re.DOTALL
    )

    assert set(files.replace("\\", " ").split()) == {name.partition("::")[0] for name in ELSEWHERE.values()}


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_examples_of_a_page_are_a_program_and_its_commands_work_after_it(
    page: str, tmp_path: Path
) -> None:
    answer = run_page(tmp_path, page)

    assert (answer.stdout, answer.stderr, answer.returncode) == (whole(page, ""), "", 0)
    for line in "".join(blocks(page, "console")).splitlines():
        program, *words = shlex.split(line.removeprefix("$ "))
        assert program == "forebay"
        result = run(tmp_path, "-m", "forebay", *words, FOREBAY_URL="sqlite:///jobs.db")
        assert (result.returncode, result.stderr) == (0, ""), (line, result.stdout)


def test_the_example_of_the_page_about_payloads_runs(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "reference/payloads.md")

    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_the_example_of_the_page_about_security_runs(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/security.md")

    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_the_reader_in_javascript_reads_what_python_has_written(tmp_path: Path) -> None:
    [reader] = blocks("reference/payloads.md", "javascript")
    call = encode_call(
        [2**70, b"bytes", {1, 2}, datetime(2030, 1, 31, tzinfo=UTC)], {"to": "Ada", "pair": (1, None)}
    )
    (tmp_path / "call.bin").write_bytes(call)
    (tmp_path / "call.spoilt").write_bytes(call.replace(b"Ada", b"Eve"))
    (tmp_path / "read.mjs").write_text(reader + LOOK)

    done = subprocess.run(
        [node(), "read.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False
    )

    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [
            "1180591620717411303424 bytes 1,2 2030-01-31T00:00:00.000Z",
            '{"to":"Ada","pair":[1,null]}',
            "corrupt: checksum",
        ],
    )


def test_the_query_of_the_page_about_payloads_finds_an_argument(tmp_path: Path) -> None:
    [query] = blocks("reference/payloads.md", "sql")
    with Forebay(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        job = app.enqueue("send", kwargs={"to": "Ada"})

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        assert connection.execute(query).fetchall() == [(job.id, "Ada")]


def test_the_example_of_the_page_about_settings_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [example] = blocks("reference/settings.md", "toml")
    (tmp_path / "forebay.toml").write_text(example)
    monkeypatch.chdir(tmp_path)

    assert {"queues": "mail,default", "threads": 8}.items() <= read_settings().worker_defaults().items()
