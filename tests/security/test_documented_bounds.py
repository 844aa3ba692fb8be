"""The page about security names the bounds that the server has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from forebay.domain.api_key import DEFAULT_QUOTA
from forebay.domain.login_session import MINUTE_MS, SessionLimits
from forebay.domain.progress import MAX_STEP_BYTES
from forebay.service import browser_sessions, client_rates_and_quotas
from forebay.service.auth import KEY_CACHE_SECONDS, OPEN_RATE
from forebay.service.grpc import keyless_call_limits, message_arrival_turns
from forebay.service.grpc import server as grpc_server
from forebay.service.http import body_timeout
from forebay.service.http.connection_timeouts import TimedConnection
from forebay.service.http.routes import events
from forebay.service.request_log import LINES
from forebay.service.runtime.codec_threads import LARGE
from forebay.service.runtime.payload_bytes_per_response import CLAIM_BYTES
from forebay.service.schema.audit import MAX_CHECKED
from forebay.service.server_security import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS

PAGE: Final = Path(__file__).parents[2] / "docs" / "guide" / "security.md"
MIB: Final = 1_048_576
SECOND: Final = 1_000
GRPC: Final[dict[str, Any]] = dict(grpc_server.OPTIONS)


@pytest.fixture(scope="module")
def page() -> str:
    return " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("sentence", "values"),
    [
        (
            "| a connection until the head of its request is there | # s |",
            (TimedConnection.head_seconds,),
        ),
        (
            "| the body of a request, the message of a call over gRPC | # s |",
            (body_timeout.ARRIVAL_TIMEOUT_SECONDS,),
        ),
        (
            "the message of a call over gRPC | # s |",
            (message_arrival_turns.ARRIVAL_TIMEOUT_SECONDS,),
        ),
        ("| the rest of a body that was refused | # s, then", (TimedConnection.body_rest_seconds,)),
        (
            "| a request as a whole | # h; a stream of events # min |",
            (TimedConnection.age_seconds / 3_600, events.MAX_STREAM_SECONDS / 60),
        ),
        (
            "counted where one has more than # KiB | # MiB |",
            (LARGE / 1_024, client_rates_and_quotas.MOST_BODY_BYTES / MIB),
        ),
        ("| a message over gRPC | # MiB |", (GRPC["grpc.max_receive_message_length"] / MIB,)),
        (
            "at a time over gRPC | #; others wait for # s, and # calls may. A message of more than # KiB",
            (
                message_arrival_turns.MAX_ARRIVING,
                message_arrival_turns.ARRIVAL_TIMEOUT_SECONDS,
                message_arrival_turns.MAX_UNREAD,
                LARGE / 1_024,
            ),
        ),
        (
            "that has waited for # s ends the message that has arrived for the longest time, if that is # s",
            (message_arrival_turns.CONTENDED_TIMEOUT_SECONDS,) * 2,
        ),
        (
            "# of their messages arrive at a time, each within # s |",
            (keyless_call_limits.MAX_OPEN_ARRIVING, keyless_call_limits.OPEN_ARRIVAL_TIMEOUT_SECONDS),
        ),
        ("of a job together | # MiB |", (MAX_STEP_BYTES / MIB,)),
        (
            "takes nothing of its answer, after the connection is closed | # s |",
            (TimedConnection.head_seconds,),
        ),
        ("`--max-connections` (#)", (MAX_CONNECTIONS,)),
        ("`--max-connections-each`; # beyond loopback", (MAX_CONNECTIONS_PER_ADDRESS,)),
        ("| calls on one connection over gRPC | # |", (GRPC["grpc.max_concurrent_streams"],)),
        (
            "gRPC without a key (health) | # at a time, # of one address",
            (keyless_call_limits.MAX_OPEN_CALLS, keyless_call_limits.MAX_OPEN_CALLS_PER_ADDRESS),
        ),
        (
            "| # min without a call; after # h it is asked to end, with # min for its calls |",
            (
                GRPC["grpc.max_connection_idle_ms"] / 60 / SECOND,
                GRPC["grpc.max_connection_age_ms"] / 3_600 / SECOND,
                GRPC["grpc.max_connection_age_grace_ms"] / 60 / SECOND,
            ),
        ),
        ("An IPv6 network of # bits counts as one address", (client_rates_and_quotas.NETWORK_BITS,)),
        ("address may ask for them # times a second", (OPEN_RATE.rate,)),
        (
            "| requests that wait at a time: claims, `wait`, and workers that listen for hints | # |",
            (DEFAULT_QUOTA.max_waits,),
        ),
        ("server-sent events and streams of gRPC | # |", (DEFAULT_QUOTA.max_streams,)),
        ("over gRPC those with a call under way | # |", (DEFAULT_QUOTA.max_connections,)),
        ("may be of at most # kinds, by queues", (client_rates_and_quotas.MAX_GROUPS,)),
        ("An answer to a claim has about # MiB of payloads", (CLAIM_BYTES / MIB,)),
        (
            "After # lines at once there are at most # a second of each status",
            (LINES.burst_size, LINES.rate),
        ),
        ("after # minutes without use", (SessionLimits().idle_ms / MINUTE_MS,)),
        ("after # hours in any case", (SessionLimits().lasts_ms / 60 / MINUTE_MS,)),
        ("A name has at most # sessions", (browser_sessions.MAX_PER_NAME,)),
        ("One request checks at most # lines", (MAX_CHECKED,)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bound_is_what_the_page_says(page: str, sentence: str, values: tuple[float, ...]) -> None:
    pattern = re.escape(sentence).replace(r"\#", r"([\d,]+)")
    found = re.search(pattern, page)

    assert found is not None
    assert tuple(float(one.replace(",", "")) for one in found.groups()) == values


def test_a_revoked_key_is_believed_as_long_as_the_page_says(page: str) -> None:
    assert KEY_CACHE_SECONDS == 5
    assert "opens nothing any more after five seconds" in page
    assert "after five seconds at most on other servers" in page


def test_the_threat_model_names_tests_that_are_there() -> None:
    root = PAGE.parents[2]
    rows = (root / "docs/internals/threat-model.md").read_text(encoding="utf-8")
    defended = rows[rows.index("## What is defended") : rows.index("## What is not defended")]
    lines = [line for line in defended.splitlines() if line.startswith("| ")][1:]

    assert lines
    for line in lines:
        named = re.findall(r"`(tests/[\w./]+)`", line.split("|")[-2])
        assert named, line
        assert all((root / one).exists() for one in named), line
