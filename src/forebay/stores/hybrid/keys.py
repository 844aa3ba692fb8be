"""Every key that Redis holds beside PostgreSQL. All begin with the namespace in braces, like those of the
Redis engine, then `beside`, and the database, the schema and the PostgreSQL server that they are about:
`{forebay}:beside:shop.forebay.7409158824713568301:`. So they lie in one slot of a cluster, and stores can
share a server, also those whose databases have the same name.

  hot:<queue>      sorted set by rank: the hottest part of a queue's order; members are seqs in 13 digits
  end:<queue>      string  up to which place the order is known: "rank:seq", + for all of it, none for nothing
  taken:<queue>    hash    claim -> the range of places that were named to it, and when; until it has tried
  forgot:<queue>   string  somebody has had this order forgotten a moment ago

and one channel, `news`. Nothing of it decides anything. Every key goes by itself a minute after its queue was
last asked for, and is made again from PostgreSQL: it may be flushed, evicted or lost at any time. Whoever
comes tries everything out with a queue that begins with a space, as none does, and leaves nothing of it.
"""

from __future__ import annotations

from typing import Final

from forebay.errors import StoreError, StoreUnavailable
from forebay.stores.hybrid.statements import statements_beside
from forebay.stores.postgres.connection import Connection

KEPT_MS: Final = 60_000


def prefix(tag: str, connection: Connection) -> str:
    """What all keys about this store begin with. Its database says itself which one it is: one name may mean
    two, on two servers, and a pooler may call one by two names."""
    statements = statements_beside(connection.address.schema)
    try:
        database, number = _asked(connection, statements["origin"])
    except StoreUnavailable:
        raise
    except StoreError:
        database, number = _asked(connection, statements["origin_by_age"])
    return f"{tag}:beside:{database}.{connection.address.schema}.{number}"


def _asked(connection: Connection, statement: bytes) -> tuple[str, str]:
    [(database, number)] = connection.call(lambda raw: raw.execute(statement).fetchall())
    return database, number


def channel(prefix: str) -> str:
    """What wake-ups of this store are published on."""
    return f"{prefix}:news"
