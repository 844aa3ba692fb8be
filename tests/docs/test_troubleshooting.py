"""The page about troubles: its commands answer, and the doctor leads to it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.domain.job import QueueName
from tests.cli.command_runner import working
from tests.docs.pages import ROOT, blocks, run, text
from tests.worker.support import eventually
from tools.check_links import anchors

PAGE = "troubleshooting.md"
# A queue that no worker serves, a dead letter, one that is blocked by it, a schedule, and a worker elsewhere.
TROUBLE = """
from datetime import timedelta

from forebay import Forebay, PermanentError, RetryPolicy

app = Forebay("sqlite:///jobs.db")


@app.task(queue="mail", retries=0)
def charge(order: int) -> None:
    raise PermanentError("the card is not valid")


@app.task(queue="other", retry_policy=RetryPolicy(base_ms=3_600_000))
def fail() -> None:
    raise ConnectionError("no answer")


@app.task(queue="mail")
def receipt(order: int) -> None: ...


if __name__ == "__main__":
    with app:
        paid = charge.using(id="order-7").enqueue(7)
        receipt.using(id="receipt-7", depends_on=[paid], on_failure="hold").enqueue(7)
        app.schedules.save("nightly", receipt, [1], every=timedelta(days=1))
        with app.run_worker(queues=["mail"]):
            paid.wait(timeout=100)
        receipt.enqueue(8)
        fail.enqueue()
"""
SYMPTOMS = (
    "jobs-do-not-start",  # jobs stuck
    "a-job-has-vanished",
    "a-job-is-tried-again-and-again-or-too-fast",
    "a-schedule-is-silent",
    "memory-grows",
    "a-job-runs-twice",
    "priority-seems-to-be-ignored",
    "a-worker-does-not-stop",
)


@pytest.fixture
def troubled(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(TROUBLE)
    (tmp_path / "forebay.toml").write_text('app = "shop:app"\n')
    answer = run(tmp_path, "shop.py")
    assert (answer.returncode, answer.stderr) == (0, "")
    return tmp_path


def is_retrying(folder: Path) -> bool:
    """Whether the worker has been there and has tried the job that it can try."""
    with Forebay(f"sqlite:///{folder / 'jobs.db'}") as app:
        return app.counts("other")[QueueName("other")].retrying == 1


@pytest.mark.shows("R-SDK-19")
def test_every_command_of_the_page_about_troubles_answers(troubled: Path) -> None:
    lines = list(dict.fromkeys("".join(blocks(PAGE, "console")).splitlines()))
    assert len(lines) > 30

    with working(troubled, "shop:app", "--queues", "other"):
        eventually(lambda: is_retrying(troubled))
        answers = {line: run(troubled, "-m", *shlex.split(line.removeprefix("$ "))) for line in lines}

    # The doctor has found what is wrong here, and says so by its status.
    usual = {line: 1 if line.startswith("$ forebay doctor") else 0 for line in lines}
    outputs = {line: (answer.returncode, answer.stderr) for line, answer in answers.items()}
    assert outputs == {line: (status, "") for line, status in usual.items()}
    assert "no worker works on it" in answers["$ forebay doctor"].stdout
    assert "docs/troubleshooting.md#jobs-do-not-start" in answers["$ forebay doctor"].stdout
    assert "receipt-7" in answers["$ forebay jobs list --state blocked"].stdout
    assert "the card is not valid" in answers["$ forebay dead groups"].stdout


@pytest.mark.shows("R-SDK-19")
@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_the_page_has_the_symptoms_that_people_come_with(symptom: str) -> None:
    assert symptom in anchors(ROOT / "docs" / PAGE)


def test_every_symptom_is_in_the_table_at_the_top_and_says_how_to_see_it() -> None:
    page = text(PAGE)
    top, *parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    heads, bodies = parts[::2], parts[1::2]

    linked = set(re.findall(r"\(#([\w-]+)\)", top))
    assert linked == anchors(ROOT / "docs" / PAGE) - {"troubleshooting", "still-puzzled"}
    sections = dict(zip(heads, bodies, strict=True))
    assert [head for head, body in sections.items() if "**See it.**" not in body] == ["Still puzzled"]


def test_what_the_doctor_finds_leads_to_a_heading_that_exists() -> None:
    named = set()
    for name in ("check_result", "command", "setup_checks", "store_content_checks"):
        source = ROOT / "src" / "forebay" / "cli" / "doctor" / f"{name}.py"
        tree = ast.parse(source.read_text(encoding="utf-8"))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        named |= {
            one for one in texts if isinstance(one, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", one)
        }

    assert len(named) >= 8
    assert named - anchors(ROOT / "docs" / PAGE) == set()
