"""Retry policy: the wait before the next attempt, as plain data that is stored with the job."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from forebay.errors import ConfigError

MAX_RETRIES: Final = 100
MAX_DELAY_MS: Final = 366 * 86_400_000
MAX_DOUBLINGS: Final = 60  # 2**60 ms is past every ceiling


class Curve(StrEnum):
    """Growth of the delay with the number of failures."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIBONACCI = "fibonacci"
    FIXED = "fixed"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Policy for retries of failed or lost attempts.

    The delay before the n-th retry follows `curve` from `base_ms`. Jitter varies it between `jitter_low` and
    `jitter_high` (fractions), plus up to `jitter_ms`, and it ends between `floor_ms` and `ceiling_ms`.
    `max_crashes` limits how often the job may crash its worker; 0 means that it must never run twice.
    """

    max_retries: int = 3
    max_crashes: int = 3
    curve: Curve = Curve.EXPONENTIAL
    base_ms: int = 1_000
    factor: float = 2.0
    floor_ms: int = 100
    ceiling_ms: int = 3_600_000
    jitter_low: float = 0.0
    jitter_high: float = 0.1
    jitter_ms: int = 0

    def __post_init__(self) -> None:
        _check_integer("max_retries", self.max_retries, 0, MAX_RETRIES)
        _check_integer("max_crashes", self.max_crashes, 0, MAX_RETRIES)
        _check_integer("base_ms", self.base_ms, 0, MAX_DELAY_MS)
        _check_integer("floor_ms", self.floor_ms, 0, MAX_DELAY_MS)
        _check_integer("ceiling_ms", self.ceiling_ms, self.floor_ms, MAX_DELAY_MS)
        _check_integer("jitter_ms", self.jitter_ms, 0, MAX_DELAY_MS)
        if not (math.isfinite(self.factor) and self.factor >= 1.0):
            raise ConfigError(f"factor must be a number of at least 1, not {self.factor!r}")
        if not -1.0 <= self.jitter_low <= self.jitter_high <= 1.0:
            raise ConfigError("jitter_low and jitter_high must be in order and between -1 and 1")

    def delay_ms(self, failures: int, roll: float) -> int:
        """Return the wait after the given number of failures; `roll` is a random number from 0 to 1."""
        spread = self.jitter_low + roll * (self.jitter_high - self.jitter_low)
        delay = self._base_delay_ms(max(failures, 1)) * (1.0 + spread) + roll * self.jitter_ms
        return round(min(max(delay, self.floor_ms), self.ceiling_ms))

    def longest_wait_ms(self) -> int:
        """Return the sum of all delays if every retry is used, with the greatest jitter."""
        return sum(self.delay_ms(n, 1.0) for n in range(1, self.max_retries + 1))

    def _base_delay_ms(self, failures: int) -> float:
        match self.curve:
            case Curve.FIXED:
                return float(self.base_ms)
            case Curve.LINEAR:
                return float(self.base_ms * failures)
            case Curve.FIBONACCI:
                return float(self.base_ms * _fibonacci(failures))
            case Curve.EXPONENTIAL:
                return self._exponential_delay_ms(failures)
            case _:
                assert_never(self.curve)

    def _exponential_delay_ms(self, failures: int) -> float:
        # The exponent is bounded so that a float never overflows; the ceiling has long been reached.
        steps = min(failures - 1, 1_000)
        if steps * math.log2(self.factor) > MAX_DOUBLINGS:
            return self.base_ms * 2.0**MAX_DOUBLINGS
        return float(self.base_ms * self.factor**steps)


def _fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(min(n, 90)):
        a, b = b, a + b
    return a


def _check_integer(name: str, value: int, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")


DEFAULT_POLICY: Final = RetryPolicy()
# Back-offs of other job queues, for users who know them.
PRESETS: Final[dict[str, RetryPolicy]] = {
    "default": DEFAULT_POLICY,
    "cap_5m": RetryPolicy(ceiling_ms=300_000),
    "base_5s": RetryPolicy(
        base_ms=5_000, ceiling_ms=900_000, jitter_high=0.0, jitter_ms=5_000, max_retries=2
    ),
    "jitter_both_ways": RetryPolicy(jitter_low=-0.1),
    "base_1m": RetryPolicy(base_ms=60_000, jitter_high=0.0, max_retries=2),
}
