"""Points at which a process is killed while it talks to its store: before each word that it says to the
driver, and after the last one, when only the answer is missing.

They are put into the drivers and not into the engines: SQLite's cursor, the wait of a psycopg connection, the
commands of a Redis connection. All of this happens in a process that was forked to die, so nothing of it has
to be taken back.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, Self

import psycopg
import redis.connection

AFTER: Final = "after"
_KILLED: Final = "killed "


class Points:
    """Counts what is said to the driver, once it is armed, and kills the process before the word of a
    number."""

    def __init__(self, deadly: int, report: Callable[[str], object]) -> None:
        self._deadly = deadly
        self._report = report
        self._seen = 0
        self.is_armed = False

    def reach(self) -> None:
        if self.is_armed:
            self._seen += 1
            if self._seen == self._deadly:
                self.die(str(self._seen))

    def die(self, where: str) -> NoReturn:
        self._report(_KILLED + where)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("no process survives this")


def die_at(deadly: int, act: Callable[[Points], None]) -> int | None:
    """Have a process of its own act and be killed at a point; which one it was, None for the one after its
    last word to the driver."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _act_and_die(Points(deadly, lambda line: os.write(theirs, line.encode())), act, theirs)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        output = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise RuntimeError(f"the process has ended by itself:\n{output}")
    where = output.removeprefix(_KILLED)
    return None if where == AFTER else int(where)


def _act_and_die(points: Points, act: Callable[[Points], None], pipe: int) -> NoReturn:
    try:
        for put in (_into_sqlite, _into_psycopg, _into_redis):
            put(points)
        act(points)
        points.die(AFTER)
    except BaseException:
        os.write(pipe, traceback.format_exc().encode())
    finally:
        # Not by an exit in order, which would run what the parent has left to be done at its own.
        os._exit(1)


def _into_sqlite(points: Points) -> None:
    class Cursor(sqlite3.Cursor):
        def execute(self, statement: str, values: Any = (), /) -> Self:
            points.reach()
            super().execute(statement, values)
            return self

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

        def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
            return Cursor(self).execute(statement, values)

    driver: Any = sqlite3
    driver.connect = partial(sqlite3.connect, factory=Connection)


def _into_psycopg(points: Points) -> None:
    wait, wait_async = psycopg.Connection.wait, psycopg.AsyncConnection.wait

    def reached(self: Any, *words: Any, **more: Any) -> Any:
        points.reach()
        return wait(self, *words, **more)

    async def reached_async(self: Any, *words: Any, **more: Any) -> Any:
        points.reach()
        return await wait_async(self, *words, **more)

    psycopg.Connection.wait = reached  # type: ignore[method-assign]  # only in this process
    psycopg.AsyncConnection.wait = reached_async  # type: ignore[method-assign]


def _into_redis(points: Points) -> None:
    """Before a command is sent, and before its answer is read: by then it happens, and no caller is told."""
    kind: Any = redis.connection.AbstractConnection
    send, read = kind.send_command, kind.read_response

    def reached(self: Any, *words: Any, **more: Any) -> Any:
        points.reach()
        return send(self, *words, **more)

    def reached_again(self: Any, *words: Any, **more: Any) -> Any:
        points.reach()
        return read(self, *words, **more)

    kind.send_command = reached
    kind.read_response = reached_again
