"""Redis alone: a hash of jobs, a sorted set of those that wait, and a script that ends the last hundred and
takes the next hundred. In bulk it is a list, and a blocking pop of a list is how it wakes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
import redis

from benchmarks.compare.notes import note

BATCH: Final = 100
JOBS, READY, NUMBERS, RUNNING = (f"{{raw}}:{name}" for name in ("jobs", "ready", "numbers", "running"))
LIST, WAKEUPS = "{raw}:list", "{raw}:wakeups"
INSERT: Final = """
local id = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], id, ARGV[1])
redis.call('ZADD', KEYS[2], 1, id)
return id
"""
SETTLE_AND_CLAIM: Final = """
if #ARGV > 1 then
  local ended = {}
  for i = 2, #ARGV do ended[i - 1] = ARGV[i] end
  redis.call('ZREM', KEYS[3], unpack(ended))
  redis.call('HDEL', KEYS[1], unpack(ended))
end
local found = redis.call('ZPOPMIN', KEYS[2], ARGV[1])
if #found == 0 then return {{}, {}} end
local ids, leases = {}, {}
for i = 1, #found, 2 do
  ids[#ids + 1] = found[i]
  leases[#leases + 1] = 9
  leases[#leases + 1] = found[i]
end
redis.call('ZADD', KEYS[3], unpack(leases))
return {ids, redis.call('HMGET', KEYS[1], unpack(ids))}
"""


@cache
def client() -> redis.Redis:
    return redis.Redis.from_url(os.environ["COMPARE_URL"])


@cache
def script(text: str) -> str:
    return str(client().script_load(text))


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def enqueue(argument: dict[str, Any]) -> None:
    client().evalsha(script(INSERT), 3, JOBS, READY, NUMBERS, encoded(argument))


def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    """Onto a list, pipelined: the quickest that a client can do job by job. No worker drains it."""
    pipe = client().pipeline(transaction=False)
    for argument in arguments:
        pipe.lpush(LIST, encoded(argument))
    pipe.execute()


def load(arguments: Sequence[dict[str, Any]]) -> None:
    insert = script(INSERT)
    pipe = client().pipeline(transaction=False)
    for argument in arguments:
        pipe.evalsha(insert, 3, JOBS, READY, NUMBERS, encoded(argument))
    pipe.execute()


def fill(jobs: int) -> None:
    for _ in range(0, jobs, 1_000):
        load([{"t": 0.0}] * 1_000)


def probe(argument: dict[str, Any]) -> None:
    client().lpush(WAKEUPS, encoded(argument))


def settle_and_claim(ended: list[bytes]) -> list[bytes]:
    answer: Any = client().evalsha(script(SETTLE_AND_CLAIM), 3, JOBS, READY, RUNNING, BATCH, *ended)
    ids, payloads = answer
    for payload in payloads:
        msgspec.json.decode(payload)
    if ids:
        note(jobs=len(ids))
    return list(ids)


def main() -> None:
    ended: list[bytes] = []
    while True:
        claimed = settle_and_claim(ended)
        if not claimed and not ended:
            popped: Any = client().blpop([WAKEUPS], timeout=0.5)
            if popped:
                note(msgspec.json.decode(popped[1])["t"])
        ended = claimed


if __name__ == "__main__":
    main()
