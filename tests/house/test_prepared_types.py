"""Threads that decode a class for the first time see its whole description."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "src" / "forebay"
# Types without classes of our own have no description that threads share.
PLAIN: Final = {"Any", "None", "bool", "bytes", "dict", "float", "int", "list", "str", "tuple"}
# Functions that describe a type another way; each with its reason.
EXEMPT: Final = {
    "cli": "its commands decode on one thread",
    "domain/queue.py": "its class is described at the end of its definition",
    "integrations/importers": "an importer decodes on one thread",
    "prepared_types.py": "the function itself",
}

# New classes again and again, each decoded by four threads at once. Without `prepare_type` the process dies
# by SIGSEGV within 500 classes.
PROGRAM: Final = """
import sys
from threading import Barrier, Thread
from typing import Annotated

import msgspec

from forebay.prepared_types import prepare_type

sys.setswitchinterval(1e-6)


def decode(kind, barrier):
    barrier.wait()
    msgspec.convert({"a": 1, "b": {"c": []}, "last": 9}, prepare_type(kind))


for _ in range(500):
    inner = msgspec.defstruct("Inner", [("c", list[dict[str, int | None]])])
    bound = Annotated[int, msgspec.Meta(ge=0)] | None
    fields = [("a", int), ("b", inner), *((f"f{n}", bound, None) for n in range(20)), ("last", int, 0)]
    outer = msgspec.defstruct("Outer", fields)
    barrier = Barrier(4)
    threads = [Thread(target=decode, args=(outer, barrier)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("decoded")
"""


def test_threads_may_be_the_first_to_decode_a_class_together() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "decoded\n"), done.stderr


def test_functions_decode_only_types_that_are_prepared() -> None:
    found = [place for path in sorted(PACKAGE.rglob("*.py")) for place in _unprepared(path)]

    assert found == [], "wrap the type in prepare_type of forebay.prepared_types"


def _unprepared(path: Path) -> Iterator[str]:
    name = path.relative_to(PACKAGE).as_posix()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        places = (name, f"{name}:{function.name}", *(str(folder) for folder in Path(name).parents))
        if not EXEMPT.keys().isdisjoint(places):
            continue
        for call in ast.walk(function):
            if (
                isinstance(call, ast.Call)
                and (kind := _decoded_type(call)) is not None
                and not _is_safe(kind)
            ):
                yield f"{name}:{call.lineno} {ast.unparse(call)}"


def _decoded_type(call: ast.Call) -> ast.expr | None:
    """Return the type that a call of msgspec decodes."""
    called = ast.unparse(call.func)
    if called in ("msgspec.convert", "convert") and len(call.args) > 1:
        return call.args[1]
    if called.endswith("Decoder") and call.args:
        return call.args[0]
    if called.endswith(".decode"):
        return next((word.value for word in call.keywords if word.arg == "type"), None)
    return None


def _is_safe(kind: ast.expr) -> bool:
    if isinstance(kind, ast.Call) and ast.unparse(kind.func) == "prepare_type":
        return True
    return {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)} <= PLAIN
