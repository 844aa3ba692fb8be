"""Types of values that cannot be stored, with a remedy for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By name, so that none of these modules has to be imported.
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    name: texts
    for texts, names in {
        ("a function", "make it a task and pass the task's name"): (
            "builtins.builtin_function_or_method builtins.method functools.partial"
        ),
        ("a class", "pass its name"): "builtins.type",
        ("a module", "pass its name"): "builtins.module",
        ("a generator", "pass a list of what it yields"): "builtins.generator builtins.async_generator",
        ("a coroutine", "await it and pass what it returns"): "builtins.coroutine _asyncio.Future",
        ("a future", "pass its result"): "concurrent.futures._base.Future",
        ("an open file", "pass its path"): "_io._IOBase tempfile._TemporaryFileWrapper",
        ("a path object", "pass str(path)"): "pathlib.PurePath pathlib._local.PurePath",
        ("a socket", "pass the address"): "_socket.socket",
        ("a lock", "take one in the task"): (
            "_thread.lock _thread.RLock threading.Condition threading.Semaphore threading.Event "
            "asyncio.locks.Lock asyncio.locks.Event asyncio.locks.Condition asyncio.locks.Semaphore"
        ),
        ("a thread", "start one in the task"): "threading.Thread",
        ("a database connection", "open one in the task"): (
            "sqlite3.Connection sqlite3.Cursor psycopg.BaseConnection psycopg.BaseCursor "
            "psycopg._connection_base.BaseConnection psycopg._cursor_base.BaseCursor "
            "sqlalchemy.engine.base.Connection sqlalchemy.engine.base.Engine sqlalchemy.orm.session.Session"
        ),
        ("an ORM object", "pass its key and load it in the task"): (
            "django.db.models.base.Model peewee.Model"
        ),
        ("an exception", "pass its text"): "builtins.BaseException",
        ("a mutable sequence of bytes", "pass bytes(value)"): "builtins.bytearray builtins.memoryview",
        ("a sequence of this type", "pass list(value)"): "builtins.range collections.deque",
        ("a complex number", "pass its two parts"): "builtins.complex",
    }.items()
    for name in names.split()
}


def refusal_reason(kind: type) -> str:
    """Return why values of this type cannot be stored, with a remedy; an empty text for any other type."""
    texts = None
    if hasattr(kind, "_sa_class_manager"):
        # Objects of SQLAlchemy need no common base class, and some are dataclasses too.
        texts = _REFUSED["peewee.Model"]
    for base in kind.__mro__:
        texts = texts or _REFUSED.get(f"{base.__module__}.{base.__qualname__}")
    return f"{texts[0]} cannot be stored; {texts[1]}" if texts else ""
