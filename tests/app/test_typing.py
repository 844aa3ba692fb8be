"""Tasks are typed by their functions: a type checker finds wrong calls, and only those."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """\
from __future__ import annotations

from datetime import timedelta
from typing import Any

from forebay import Forebay, JobHandle

app = Forebay("memory://", defaults={"queue": "mail", "retries": 2, "timeout": None}, max_payload=5_000)


@app.task(queue="mail", retries=5, timeout=timedelta(seconds=30))
def send(to: str, subject: str = "Hi", *, copies: int = 1) -> str:
    return to


@app.task
def plain(number: int) -> None: ...


@app.task
async def later(number: int) -> float:
    return 1.0


@app.task(name="other")
async def other(number: int) -> list[int]:
    return [number]


async def right() -> None:
    text: str = send.enqueue("ada", "Hi", copies=2).result()
    handle: JobHandle[None] = plain.enqueue(5)
    number: float = later.enqueue(5).result(timeout=1)
    numbers: list[int] = (await other.enqueue_async(5)).result()
    more: JobHandle[str] = await send.using(priority=9, delay=60, unique_key="daily").enqueue_async("ada")
    handles: list[JobHandle[Any]] = app.enqueue_many([send.job("ada"), plain.job(number=5)])
    later_text: str = await send.enqueue("ada").result_async(timeout=timedelta(seconds=1))
    within: JobHandle[str] = send.enqueue_tx(object(), "ada", copies=2)
    within = await send.enqueue_tx_async(object(), "ada", copies=2)
    named: JobHandle[Any] = app.enqueue("mail.send", ["ada"], {"copies": 2}, queue="mail", priority=9)
    made: JobHandle[Any] = await app.enqueue_async(send.job("ada"), on_conflict="raise")
    print(text, handle, number, numbers, more, handles, later_text, within, named, made)


async def wrong() -> None:
    send.enqueue(5)  # wrong: arg-type
    send.enqueue()  # wrong: call-arg
    send.enqueue("ada", colour="red")  # wrong: call-arg
    send.enqueue("ada", "Hi", 2)  # wrong: call-arg|misc
    send.job(to=5)  # wrong: arg-type
    plain.enqueue("five")  # wrong: arg-type
    later.enqueue("five")  # wrong: arg-type
    await other.enqueue_async("five")  # wrong: arg-type
    send.using(priority=9).enqueue(5)  # wrong: arg-type
    send.using(priority="high")  # wrong: typeddict-item|arg-type
    send.using(colour="red")  # wrong: call-arg
    send.using(unique_until="done")  # wrong: arg-type
    app.task(retries="five")  # wrong: call-overload
    app.task(delay=5)  # wrong: call-overload
    number: int = send.enqueue("ada").result()  # wrong: assignment
    text: str = later.enqueue(5).result()  # wrong: assignment
    texts: list[str] = (await other.enqueue_async(5)).result()  # wrong: assignment
    handle: JobHandle[int] = send.enqueue("ada")  # wrong: assignment
    app.enqueue_many([send.enqueue("ada")])  # wrong: list-item
    plain("five")  # wrong: arg-type
    send.enqueue_tx(object(), 5)  # wrong: arg-type
    plain.using(priority=9).enqueue_tx(object())  # wrong: call-arg
    app.enqueue(5)  # wrong: arg-type
    app.enqueue("mail.send", ["ada"], priority="high")  # wrong: arg-type
    Forebay("memory://", defaults={"colour": "red"})  # wrong: arg-type|typeddict-unknown-key
    Forebay("memory://", defaults={"retries": "five"})  # wrong: arg-type|typeddict-item
    wrong_text: int = await send.enqueue("ada").result_async()  # wrong: assignment
    print(wrong_text)
    print(number, text, texts, handle)
"""


def expected() -> dict[int, str]:
    found = {
        number: re.search(r"# wrong: (.+)$", line) for number, line in enumerate(PROGRAM.splitlines(), 1)
    }
    return {number: match[1] for number, match in found.items() if match}


@pytest.mark.shows("R-SDK-14")
def test_a_type_checker_finds_wrong_calls_and_only_those(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", "program.py"]
    command += [f"--cache-dir={tmp_path / 'cache'}", f"--config-file={tmp_path / 'none.ini'}"]
    (tmp_path / "none.ini").write_text(f"[mypy]\nmypy_path = {ROOT / 'src'}\n")

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)

    errors = re.findall(r"^program\.py:(\d+): error: .*\[([a-z-]+)\]$", run.stdout, flags=re.MULTILINE)
    found = {int(line): code for line, code in errors}
    assert sorted(found) == sorted(expected()), run.stdout + run.stderr
    assert [line for line, code in found.items() if code not in expected()[line].split("|")] == [], run.stdout
