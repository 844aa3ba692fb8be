"""What a rule of alerts asks: `error_rate > 0.05 and queue_depth > 1000`. It is read, and never run as code.

condition   = all, { "or", all }
all         = one, { "and", one }
one         = "(", condition, ")" | value, comparison, value
value       = number | [ number, "*" ], metric
comparison  = ">" | ">=" | "<" | "<=" | "==" | "!="
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from forebay.errors import ConfigError

MAX_CONDITION: Final = 500
MAX_DEPTH: Final = 20
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[0-9]{1,15}(?:\.[0-9]{1,15})?)(?![\w.])|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>>=|<=|==|!=|[><()*]))"
)
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_JOINTS: Final = ("and", "or")
# What a metric is at the moment; None if nobody knows.
Look = Callable[[str], float | None]


class Value(NamedTuple):
    """A number, or so many times a metric."""

    factor: float
    metric: str | None = None

    def seen(self, look: Look) -> float | None:
        if self.metric is None:
            return self.factor
        found = look(self.metric)
        return None if found is None else self.factor * found


class Comparison(NamedTuple):
    """Two values against each other. What nobody knows is neither more nor less than anything."""

    left: Value
    sign: str
    right: Value

    def holds(self, look: Look) -> bool:
        left, right = self.left.seen(look), self.right.seen(look)
        return left is not None and right is not None and _COMPARISONS[self.sign](left, right)

    def metrics(self) -> frozenset[str]:
        return frozenset(one.metric for one in (self.left, self.right) if one.metric is not None)


class Joined(NamedTuple):
    """Conditions of which all have to hold, or any."""

    is_all: bool
    parts: tuple[Condition, ...]

    def holds(self, look: Look) -> bool:
        found = (part.holds(look) for part in self.parts)
        return all(found) if self.is_all else any(found)

    def metrics(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.metrics() for part in self.parts))


Condition: TypeAlias = "Comparison | Joined"


def parsed(text: str, known: Collection[str]) -> Condition:
    """What a condition says; raises ConfigError that names what is wrong with it."""
    if not text.strip():
        raise ConfigError("a condition compares metrics: write error_rate > 0.05, for example")
    if len(text) > MAX_CONDITION:
        raise ConfigError(f"a condition has at most {MAX_CONDITION} characters, not {len(text):,}")
    return _Reading(text, known).all_of_it()


class _Token(NamedTuple):
    kind: str  # number, word, sign; nothing at the end
    text: str


class _Reading:
    """One pass through a condition, token by token."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        self._text = text
        self._known = known
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def all_of_it(self) -> Condition:
        found = self._any()
        if self._next.kind:
            raise self._wrong("and, or, or the end")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _is_word(self, word: str) -> bool:
        return self._next.kind == "word" and self._next.text.lower() == word

    def _any(self) -> Condition:
        return self._joined("or", self._all)

    def _all(self) -> Condition:
        return self._joined("and", self._one)

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._is_word(word):
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word == "and", tuple(parts))

    def _one(self) -> Condition:
        if self._next.text != "(":
            return self._comparison()
        self._take()
        self._depth += 1
        # Each level is a few calls in each other, and whoever sends brackets must not use up the stack.
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"a condition has at most {MAX_DEPTH} brackets in each other")
        found = self._any()
        if self._next.text != ")":
            raise self._wrong("a closing bracket")
        self._take()
        self._depth -= 1
        return found

    def _comparison(self) -> Comparison:
        left = self._value()
        if self._next.text not in _COMPARISONS:
            raise self._wrong(f"one of {' '.join(_COMPARISONS)}")
        sign = self._take().text
        found = Comparison(left, sign, self._value())
        if not found.metrics():
            raise ConfigError(f"the condition {self._text!r:.80} compares two numbers, and no metric")
        return found

    def _value(self) -> Value:
        if self._next.kind == "number":
            factor = float(self._take().text)
            if self._next.text != "*":
                return Value(factor)
            self._take()
            return Value(factor, self._metric())
        return Value(1.0, self._metric())

    def _metric(self) -> str:
        if self._next.kind != "word" or self._next.text.lower() in _JOINTS:
            raise self._wrong("a metric or a number")
        name = self._take().text
        if name not in self._known:
            raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(sorted(self._known))}")
        return name

    def _wrong(self, wanted: str) -> ConfigError:
        found = f"{self._next.text!r:.60}" if self._next.kind else "the end"
        return ConfigError(f"the condition {self._text!r:.80} has {found} where {wanted} should be")


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            raise ConfigError(
                f"a condition cannot contain {rest!r:.40}: it compares metrics, with and, or between"
            )
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind]))
        at = match.end()
    return [*found, _Token("", "")]
