"""Request statistics of this process: latencies and errors, for monitoring.

They are counted in memory by endpoint, never by path, so that no client can make them grow. Servers do not
share them; Prometheus scrapes each server and adds up.
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
    """Endpoint as the reference names it, with its HTTP method; for gRPC, the name of the method."""

    endpoint: str
    method: str


class LatencyHistogram:
    """Latencies of one route: counts per bucket."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.seconds: float = 0.0

    def cumulative_counts(self) -> Iterator[tuple[str, int]]:
        """Return for each bound how many requests took at most so long."""
        return zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), accumulate(self.counts), strict=True)


class RequestStats:
    """Statistics of one process. For its event loop only."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.latencies: defaultdict[RequestRoute, LatencyHistogram] = defaultdict(LatencyHistogram)
        self.errors: Counter[tuple[str, str]] = Counter()  # by endpoint and status
        self.rate_limited: Counter[str] = Counter()  # by queue

    def record_response(self, route: RequestRoute, started_at: float) -> None:
        """Count a response that starts now."""
        seconds = self.clock.monotonic() - started_at
        histogram = self.latencies[route]
        histogram.counts[bisect_left(BOUNDS, seconds)] += 1
        histogram.seconds += seconds

    def record_error(self, route: RequestRoute, status: str) -> None:
        """Count a response that was, or ended with, a problem of this status."""
        self.errors[route.endpoint, status] += 1

    def record_rate_limits(self, *errors: ForebayError) -> None:
        """Count the queues whose rate has refused jobs of one request."""
        self.rate_limited.update({error.queue for error in errors if isinstance(error, RateLimited)})


class EndpointMatcher:
    """Lookup of the endpoint of a path. Static endpoints are found at once, templates by their number of
    segments."""

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
        segments = path.split("/")
        for template, parts in self._templates.get(len(segments), ()):
            if all(part in (None, segment) for part, segment in zip(parts, segments, strict=True)):
                return template
        return OTHER
