"""Scripts, each with what it needs of the parts that they share.

A server makes all functions of a script anew with every call, and looks for each outer variable of each of
them one by one. An exchange that has nothing to do took it 94 us as the files are written, 80 of them for
that. So a script gets only the parts that it names, directly or through others; names in capitals are
replaced by their numbers; and functions and shared variables become fields of one table.

For that the files keep to a form: in shared ones everything that begins a line is `local` or `function`, an
`end`, a bracket or a comment; strings have single quotes; and nothing inside a function is called like a
function or a shared variable (a test looks).
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Final, NamedTuple

from forebay.stores.shared.statements import load_statements

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
    """A function or some variables that scripts share."""

    text: str
    names: frozenset[str]
    uses: frozenset[str]


@cache
def load_scripts(clock: str | None = None) -> dict[str, Script]:
    """Every script by its name; `clock` takes the place of the server's."""
    files = dict(load_statements(PACKAGE, "lua/shared", ".lua"))
    if clock is not None:
        files[_CLOCK] = clock
    text = _COMMENT.sub("", "\n".join(files[name] for name in sorted(files)))
    numbers = _numbers_in(text)
    pieces = [_parse_fragment(piece) for piece in _FRAGMENT.split(_NUMBERS.sub("", text)) if piece.strip()]
    scripts = load_statements(PACKAGE, "lua", ".lua")
    return {name: _script(text, pieces, numbers) for name, text in sorted(scripts.items())}


def _script(text: str, fragments: list[_Fragment], numbers: dict[str, str]) -> Script:
    # The first line tells the server what the script may do, and has to stay the first.
    flags, _, rest = text.partition("\n")
    rest = _COMMENT.sub("", rest)
    numbers = {**numbers, **_numbers_in(rest)}
    rest = _NUMBERS.sub("", rest)
    fields = {name for piece in fragments for name in piece.names} | set(_FUNCTION.findall(rest))
    words = {**numbers, **{name: f"shared.{name}" for name in fields}}
    parts = [piece.text for piece in _select_fragments(_words(rest), fragments)]
    text = "".join([*parts, _FUNCTION.sub(r"function \1", rest)])
    whole = "\n".join((flags, _TABLE, _replace_words(text, words)))
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


def _select_fragments(identifiers: frozenset[str], fragments: list[_Fragment]) -> list[_Fragment]:
    """The pieces that are named by these words, and by each other, in their order."""
    taken: set[_Fragment] = set()
    while more := {piece for piece in fragments if piece not in taken and piece.names & identifiers}:
        taken |= more
        identifiers = identifiers.union(*(piece.uses for piece in more))
    return [piece for piece in fragments if piece in taken]


def _parse_fragment(text: str) -> _Fragment:
    """A piece without its `local`; a name that has no value yet needs no field."""
    found = _DEFINED.match(text)
    if found is None:
        raise ValueError(f"this is no function and no variable: {text[:60]!r}")
    names = frozenset((found[1] or found[2]).split(", "))
    has_value = found[1] is not None or found[3] is not None
    return _Fragment(text.removeprefix("local ") if has_value else "", names, _words(text))


def _numbers_in(text: str) -> dict[str, str]:
    return {
        name: number
        for names, values in _NUMBERS.findall(text)
        for name, number in zip(names.split(", "), values.split(", "), strict=True)
    }


def _replace_words(text: str, replacements: dict[str, str]) -> str:
    parts = _STRING.split(text)
    for place in range(0, len(parts), 2):
        parts[place] = _WORD.sub(lambda word: replacements.get(word[0], word[0]), parts[place])
    return "".join(parts)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_STRING.sub("", text)))
