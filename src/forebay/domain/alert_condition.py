"""Conditions of alert rules, such as `error_rate > 0.05 and queue_depth > 1000`: parsed, never executed as
code.

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
_OPERATORS: Final = ("and", "or")
# Current value of a metric; None if it is unknown.
MetricLookup = Callable[[str], float | None]


class MetricTerm(NamedTuple):
    """Number, or a metric times a factor."""

    factor: float
    metric: str | None = None

    def evaluate(self, lookup: MetricLookup) -> float | None:
        if self.metric is None:
            return self.factor
        value = lookup(self.metric)
        return None if value is None else self.factor * value


class MetricComparison(NamedTuple):
    """Comparison of two terms. A comparison with an unknown value never holds."""

    left: MetricTerm
    sign: str
    right: MetricTerm

    def holds(self, lookup: MetricLookup) -> bool:
        left, right = self.left.evaluate(lookup), self.right.evaluate(lookup)
        return left is not None and right is not None and _COMPARISONS[self.sign](left, right)

    def metrics(self) -> frozenset[str]:
        return frozenset(term.metric for term in (self.left, self.right) if term.metric is not None)


class BooleanCondition(NamedTuple):
    """Conditions of which all have to hold, or any."""

    is_all: bool
    parts: tuple[Condition, ...]

    def holds(self, lookup: MetricLookup) -> bool:
        results = (part.holds(lookup) for part in self.parts)
        return all(results) if self.is_all else any(results)

    def metrics(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.metrics() for part in self.parts))


Condition: TypeAlias = "MetricComparison | BooleanCondition"


def parse_condition(text: str, known: Collection[str]) -> Condition:
    """Parse a condition; raise ConfigError that names the mistake."""
    if not text.strip():
        raise ConfigError("a condition compares metrics: write error_rate > 0.05, for example")
    if len(text) > MAX_CONDITION:
        raise ConfigError(f"a condition has at most {MAX_CONDITION} characters, not {len(text):,}")
    return _Parser(text, known).parse()


class _Token(NamedTuple):
    kind: str  # number, word, sign; nothing at the end
    text: str


class _Parser:
    """Recursive-descent parser of one condition."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        self._text = text
        self._known = known
        self._tokens = _tokenize(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._parse_or()
        if self._next.kind:
            raise self._error("and, or, or the end")
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _is_word(self, word: str) -> bool:
        return self._next.kind == "word" and self._next.text.lower() == word

    def _parse_or(self) -> Condition:
        return self._parse_joined("or", self._parse_and)

    def _parse_and(self) -> Condition:
        return self._parse_joined("and", self._parse_operand)

    def _parse_joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._is_word(word):
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else BooleanCondition(word == "and", tuple(parts))

    def _parse_operand(self) -> Condition:
        if self._next.text != "(":
            return self._parse_comparison()
        self._take()
        self._depth += 1
        # Each level takes a few nested calls, and a client's brackets must not exhaust the stack.
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"a condition has at most {MAX_DEPTH} brackets in each other")
        condition = self._parse_or()
        if self._next.text != ")":
            raise self._error("a closing bracket")
        self._take()
        self._depth -= 1
        return condition

    def _parse_comparison(self) -> MetricComparison:
        left = self._parse_term()
        if self._next.text not in _COMPARISONS:
            raise self._error(f"one of {' '.join(_COMPARISONS)}")
        sign = self._take().text
        comparison = MetricComparison(left, sign, self._parse_term())
        if not comparison.metrics():
            raise ConfigError(f"the condition {self._text!r:.80} compares two numbers, and no metric")
        return comparison

    def _parse_term(self) -> MetricTerm:
        if self._next.kind == "number":
            factor = float(self._take().text)
            if self._next.text != "*":
                return MetricTerm(factor)
            self._take()
            return MetricTerm(factor, self._parse_metric())
        return MetricTerm(1.0, self._parse_metric())

    def _parse_metric(self) -> str:
        if self._next.kind != "word" or self._next.text.lower() in _OPERATORS:
            raise self._error("a metric or a number")
        name = self._take().text
        if name not in self._known:
            raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(sorted(self._known))}")
        return name

    def _error(self, expected: str) -> ConfigError:
        actual = f"{self._next.text!r:.60}" if self._next.kind else "the end"
        return ConfigError(f"the condition {self._text!r:.80} has {actual} where {expected} should be")


def _tokenize(text: str) -> list[_Token]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            raise ConfigError(
                f"a condition cannot contain {rest!r:.40}: it compares metrics, with and, or between"
            )
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind]))
        at = match.end()
    return [*tokens, _Token("", "")]
