"""The first app, written as a reader of the tutorial would write it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import DEADLINE, ROOT, blocks, pages, text, whole

FIRST = "tutorials/first-app.md"
# A reader looks when something has happened; a test has to be sure.
SEEN = """
import sys
import time

from letters import app

while not app.job(sys.argv[1]).refresh().failures:
    time.sleep(0.02)
"""


def written(folder: Path, page: str) -> None:
    """The files of a page: each block says in its first line which one it belongs to."""
    for block in blocks(page, "python"):
        first, _, body = block.partition("\n")
        with (folder / first.removeprefix("# ")).open("a") as file:
            file.write(f"{body}\n\n")


def environment() -> dict[str, str]:
    """That of a reader who has activated an environment with Forebay in it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**plain, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """The worker in the reader's second terminal."""
    process = subprocess.Popen(["forebay", "worker"], cwd=folder, env=environment())
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def test_the_first_app_does_what_its_page_says(tmp_path: Path) -> None:
    written(tmp_path, FIRST)
    [settings] = blocks(FIRST, "toml")
    (tmp_path / "forebay.toml").write_text(settings)

    (tmp_path / "seen.py").write_text(SEEN)
    look = "forebay jobs list --queue mail\n"
    script = whole(FIRST, "sh")
    assert look in script

    with worker(tmp_path):
        done = subprocess.run(
            ["sh", "-e", "-c", script.replace(look, f'python seen.py "$id"\n{look}')],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Subject: Welcome" in done.stdout
    assert "ConnectionError: the mail server does not answer" in done.stdout
    assert "\n[2]\n" in done.stdout
    assert "letters.tidy" in done.stdout
    assert "6 passed" in done.stdout


def test_taking_the_key_out_makes_the_last_test_of_the_first_app_fail(tmp_path: Path) -> None:
    written(tmp_path, FIRST)
    program = (tmp_path / "letters.py").read_text()
    key = 'send.using(idempotency_key=f"issue {number} to {to}").enqueue('
    assert key in program
    (tmp_path / "letters.py").write_text(program.replace(key, "send.enqueue("))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert "1 failed, 5 passed" in done.stdout


def test_every_tutorial_is_on_the_list() -> None:
    listed = text("tutorials/README.md")
    names = [page.removeprefix("tutorials/") for page in pages() if page.startswith("tutorials/")]

    assert (ROOT / "docs" / FIRST).exists()
    assert [name for name in names if name != "README.md" and f"]({name})" not in listed] == []
