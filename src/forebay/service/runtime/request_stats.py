"""How long the requests of this process took to answer, and which went wrong: for whoever watches over it.

Counted in memory, for each endpoint and never for each path: nobody can make it grow by asking for something
else. Servers know nothing of each other; a Prometheus server asks each of them and adds up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from forebay.clock import Clock
from forebay.errors import ForebayError, RateLimited

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER: Final = "other"


class RequestRoute(NamedTuple):
    """What was asked for: an endpoint as the reference names it, and a method; that of gRPC is its name."""

    endpoint: str
    method: str


class LatencyHistogram:
    """How long requests of one kind took: so many within each bound, and beyond the last."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.seconds: float = 0.0

    def cumulative_counts(self) -> Iterator[tuple[str, int]]:
        """How many took at most so many seconds."""
        return zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), accumulate(self.counts), strict=True)


class RequestStats:
    """All of one process. On its event loop alone."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.latencies: defaultdict[RequestRoute, LatencyHistogram] = defaultdict(LatencyHistogram)
        self.errors: Counter[tuple[str, str]] = Counter()  # by endpoint and status
        self.rate_limited: Counter[str] = Counter()  # by queue

    def record_response(self, route: RequestRoute, started_at: float) -> None:
        """The answer to this begins now."""
        seconds = self.clock.monotonic() - started_at
        took = self.latencies[route]
        took.counts[bisect_left(BOUNDS, seconds)] += 1
        took.seconds += seconds

    def record_error(self, route: RequestRoute, status: str) -> None:
        """It was answered, or its answer has ended, with a problem of this status."""
        self.errors[route.endpoint, status] += 1

    def record_rate_limits(self, *errors: ForebayError) -> None:
        """New jobs of one request were refused for these reasons."""
        self.rate_limited.update({error.queue for error in errors if isinstance(error, RateLimited)})


class EndpointMatcher:
    """Finds the endpoint that a path is for. Static ones are found at once; those with places for names by
    the number of their parts, of which there are few."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._static: set[str] = set()
        self._templates: defaultdict[int, list[tuple[str, list[str | None]]]] = defaultdict(list)
        for template in templates:
            parts = [None if part.startswith("{") else part for part in template.split("/")]
            if None in parts:
                self._templates[len(parts)].append((template, parts))
            else:
                self._static.add(template)

    def match(self, path: str) -> str:
        if path in self._static:
            return path
        asked = path.split("/")
        for template, parts in self._templates.get(len(asked), ()):
            if all(part is None or part == one for part, one in zip(parts, asked, strict=True)):
                return template
        return OTHER
