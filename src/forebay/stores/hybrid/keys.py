"""Every key that Redis holds beside PostgreSQL. All begin with the namespace in braces, like those of the
Redis engine, then `beside`, and the database and the schema that they are about:
`{forebay}:beside:shop.forebay:`. So they lie in one slot of a cluster, and stores can share a server.

  hot:<queue>      sorted set by rank: the hottest part of a queue's order; members are seqs in 13 digits
  end:<queue>      string  up to which place the order is known: "rank:seq", + for all of it, none for nothing
  taken:<queue>    hash    claim -> the range of places that were named to it, and when; until it has tried
  forgot:<queue>   string  somebody has had this order forgotten a moment ago

and one channel, `news`. Nothing of it decides anything. Every key goes by itself a minute after its queue was
last asked for, and is made again from PostgreSQL: it may be flushed, evicted or lost at any time.
"""

from __future__ import annotations

from typing import Final

from psycopg.conninfo import conninfo_to_dict

from forebay.stores.postgres.connection import Address as PostgresAddress
from forebay.stores.redis.connection import Address as RedisAddress

KEPT_MS: Final = 60_000


def prefix(postgres: PostgresAddress, redis: RedisAddress) -> str:
    """What all keys about this store begin with."""
    parts = conninfo_to_dict(postgres.dsn)
    database = parts.get("dbname") or parts.get("user") or ""
    return f"{redis.tag}:beside:{database}.{postgres.schema}"


def channel(prefix: str) -> str:
    """What wake-ups of this store are published on."""
    return f"{prefix}:news"
