"""Linker of the Lua scripts: each script with the shared fragments that it uses.

A server creates all functions of a script anew with every call, and resolves each outer variable of each
function one by one. Linked with every shared file, a `settle_and_claim` without work took 94 us, 80 of them
for that. So a script gets only the fragments that it uses, directly or through other fragments. Names in
capitals are replaced by their numbers, and functions and shared variables become fields of one table.

The files follow a form for that. In shared files a line without indentation begins with `local`, `function`,
`end`, a bracket or a comment. Strings have single quotes. No name inside a function equals that of a function
or a shared variable (a test checks that).
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Final, NamedTuple

from forebay.stores.shared.statement_loader import read_files

PACKAGE: Final = "forebay.stores.redis"
_CLOCK: Final = "1_clock"

_FRAGMENT: Final = re.compile(r"^(?=local |function )", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n|\s+--.*$", re.MULTILINE)
_STRING: Final = re.compile(r"('[^'\n]*')")
_DEFINED: Final = re.compile(r"(?:local )?function (\w+)|local (\w+(?:, \w+)*)( =)?")
_FUNCTION: Final = re.compile(r"^local function (\w+)", re.MULTILINE)
_NUMBERS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)$", re.MULTILINE)
_WORD: Final = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_TABLE: Final = "local shared = {}"


class Script(NamedTuple):
    text: str
    digest: str


class _Fragment(NamedTuple):
    """Function or variables of a shared file."""

    text: str
    names: frozenset[str]
    uses: frozenset[str]


@cache
def load_scripts(clock: str | None = None) -> dict[str, Script]:
    """Return all scripts by name; `clock` replaces the server's clock."""
    files = dict(read_files(PACKAGE, "lua/shared", ".lua"))
    if clock is not None:
        files[_CLOCK] = clock
    text = _COMMENT.sub("", "\n".join(files[name] for name in sorted(files)))
    numbers = _numbers_in(text)
    fragments = [
        _parse_fragment(fragment) for fragment in _FRAGMENT.split(_NUMBERS.sub("", text)) if fragment.strip()
    ]
    scripts = read_files(PACKAGE, "lua", ".lua")
    return {name: _script(text, fragments, numbers) for name, text in sorted(scripts.items())}


def _script(text: str, fragments: list[_Fragment], numbers: dict[str, str]) -> Script:
    # The first line declares the script's flags to the server, and must stay the first.
    flags, _, rest = text.partition("\n")
    rest = _COMMENT.sub("", rest)
    numbers = {**numbers, **_numbers_in(rest)}
    rest = _NUMBERS.sub("", rest)
    fields = {name for fragment in fragments for name in fragment.names} | set(_FUNCTION.findall(rest))
    replacements = {**numbers, **{name: f"shared.{name}" for name in fields}}
    used = [fragment.text for fragment in _select_fragments(_words(rest), fragments)]
    text = "".join([*used, _FUNCTION.sub(r"function \1", rest)])
    linked = "\n".join((flags, _TABLE, _replace_words(text, replacements)))
    return Script(linked, hashlib.sha1(linked.encode(), usedforsecurity=False).hexdigest())


def _select_fragments(identifiers: frozenset[str], fragments: list[_Fragment]) -> list[_Fragment]:
    """Return the fragments with these names, and those that they use, in their order."""
    selected: set[_Fragment] = set()
    while added := {
        fragment for fragment in fragments if fragment not in selected and fragment.names & identifiers
    }:
        selected |= added
        identifiers = identifiers.union(*(fragment.uses for fragment in added))
    return [fragment for fragment in fragments if fragment in selected]


def _parse_fragment(text: str) -> _Fragment:
    """Parse a fragment, without its `local`; a name without a value needs no field."""
    definition = _DEFINED.match(text)
    if definition is None:
        raise ValueError(f"neither a function nor a variable: {text[:60]!r}")
    names = frozenset((definition[1] or definition[2]).split(", "))
    has_value = definition[1] is not None or definition[3] is not None
    return _Fragment(text.removeprefix("local ") if has_value else "", names, _words(text))


def _numbers_in(text: str) -> dict[str, str]:
    return {
        name: number
        for names, values in _NUMBERS.findall(text)
        for name, number in zip(names.split(", "), values.split(", "), strict=True)
    }


def _replace_words(text: str, replacements: dict[str, str]) -> str:
    parts = _STRING.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = _WORD.sub(lambda match: replacements.get(match[0], match[0]), parts[index])
    return "".join(parts)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_STRING.sub("", text)))
