"""A program with isolated tasks: imported by the tests, and again by the processes that run its jobs."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread, current_thread, main_thread
from time import process_time, sleep

from forebay import Cancel, Forebay, Snooze, current_job
from forebay.worker.executors.messages import MAX_FRAME
from forebay.worker.task_invoker import JobInterrupted

app = Forebay("memory://")
started_by: list[int] = []


@app.on_start
def note_the_start() -> None:
    started_by.append(os.getpid())


@app.on_stop
def note_the_end() -> None:
    folder = os.environ.get("FOLDER_OF_THE_TEST")
    if folder:
        Path(folder, f"stopped-{os.getpid()}").touch()


@app.task(name="pid", isolated=True)
def pid() -> int:
    return os.getpid()


@app.task(name="about", isolated=True)
def about() -> dict[str, object]:
    context = current_job()
    return {
        "hooks": started_by == [os.getpid()],
        "main": current_thread() is main_thread(),
        "attempt": context.attempt,
        "group": os.getpgid(0) == os.getpid(),
        "main module": "__main__" not in (__name__,),
    }


@app.task(name="numbers", isolated=True)
def numbers() -> list[int]:
    return [current_job().attempt, current_job().run_number]


@app.task(name="add", isolated=True)
def add(first: int, second: int) -> int:
    return first + second


@app.task(name="add soon", isolated=True)
async def add_soon(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


@app.task(name="fail", isolated=True)
def fail(words: str) -> None:
    raise ValueError(words)


@app.task(name="snooze", isolated=True)
def snooze() -> None:
    raise Snooze(60)


@app.task(name="cancel itself", isolated=True)
def cancel_itself() -> None:
    raise Cancel("not needed")


@app.task(name="leave", isolated=True)
def leave(status: int) -> None:
    os._exit(status)


@app.task(name="kill itself", isolated=True)
def kill_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    sleep(60)


@app.task(name="hold", isolated=True, grace=60)
def hold(file: str) -> None:
    """Runs until it is stopped, and ends in order then."""
    write_pid(file)
    try:
        sleep(600)
    except JobInterrupted:
        Path(f"{file}.asked").touch()
        raise


@app.task(name="hold soon", isolated=True, grace=60)
async def hold_soon(file: str) -> None:
    write_pid(file)
    await asyncio.sleep(600)


@app.task(name="hold deaf", isolated=True, grace=0.5)
def hold_deaf(file: str) -> None:
    """Does not listen to anything, and holds the interpreter."""
    write_pid(file)
    ctypes.PyDLL(None).sleep(600)


@app.task(name="hold patiently", isolated=True, grace=3_600)
def hold_patiently(file: str) -> None:
    """Does not listen, and its task would give it an hour."""
    hold_deaf(file)


@app.task(name="hold not at all", isolated=True, grace=0)
def hold_not_at_all(file: str) -> None:
    """Takes a minute to put things in order, and has no time for that."""
    try:
        hold(file)
    finally:
        sleep(60)


@app.task(name="hold with family", isolated=True)
def hold_with_family(file: str) -> None:
    """Has started another program, which would go on for long."""
    family = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    write_pid(f"{file}.family", family.pid)
    write_pid(file)
    sleep(600)


@app.task(name="take memory", isolated=True, memory_limit="64MB")
def take_memory(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


@app.task(name="hold in memory", isolated=True, memory_limit="64MB")
def hold_in_memory() -> None:
    sleep(600)


@app.task(name="speak", isolated=True)
def speak(lines: int) -> None:
    context = current_job()
    for number in range(lines):
        context.log(f"line {number}")
        context.progress(number + 1, lines, "reading")


@app.task(name="walk", isolated=True)
def walk(file: str) -> list[int]:
    """Two steps; the first attempt dies between them."""
    context = current_job()
    first = context.step("first", write_line, file)
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [first, context.step("second", write_line, file)]


@app.task(name="hand on", isolated=True)
def hand_on(number: int) -> None:
    current_job().follow_up(handed_on.job(number))


@app.task(name="handed on", isolated=True)
def handed_on(number: int) -> int:
    return number * 2


@app.task(name="look around", isolated=True, soft_timeout=0.2)
def look_around(file: str) -> str:
    """Waits until it is told something, and ends in its own way."""
    write_pid(file)
    context = current_job()
    while not context.is_past_soft_timeout:
        sleep(0.01)
    return "overdue"


@app.task(name="spin", isolated=True)
def spin(ms: int) -> int:
    """Work for the processor."""
    ends, rounds = process_time() + ms / 1_000, 0
    while process_time() < ends:
        rounds += 1
    return rounds


def write_pid(file: str, number: int | None = None) -> None:
    part = Path(f"{file}.part")
    part.write_text(str(os.getpid() if number is None else number))
    part.rename(file)


def write_line(file: str) -> int:
    with Path(file).open("a") as lines:
        lines.write("done\n")
    return len(Path(file).read_text().splitlines())


@app.task(name="enqueue another", isolated=True)
def enqueue_another() -> None:
    add.enqueue(1, 2)


@app.task(name="leave a progress sink", isolated=True)
def leave_a_progress_sink() -> None:
    """A thread goes on talking when the job has ended."""
    context = current_job()

    def talk() -> None:
        while True:
            context.log("still here")
            sleep(0.001)

    Thread(target=talk, daemon=True).start()


@app.task(name="close everything", isolated=True)
def close_everything() -> None:
    os.closerange(3, 1_000)


@app.task(name="take memory soon", isolated=True, memory_limit="64MB")
async def take_memory_soon(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


@app.task(name="echo", isolated=True)
def echo(words: str) -> str:
    return words


@app.task(name="babble", isolated=True)
def babble() -> None:
    """Says nonsense to the worker."""
    for number in range(3, 4096):  # its end of the line has the number that it had in the worker
        with suppress(OSError):
            os.write(number, b"\xff" * 100)
    sleep(600)


@app.task(name="fork", isolated=True)
def fork() -> int:
    """A copy of the process returns from here too."""
    os.fork()
    return 1


@app.task(name="cancel itself at length", isolated=True)
def cancel_itself_at_length() -> None:
    raise Cancel("x" * MAX_FRAME)


@app.task(name="stop the loop", isolated=True)
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(600)


@app.task(name="leave by a task of its own", isolated=True)
async def leave_by_a_task_of_its_own() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(leave())
