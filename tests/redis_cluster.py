"""A cluster of three real nodes for tests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import redis

from tests.redis_server import RedisServer
from tests.servers import _free_port

STARTING: Final = 60.0
SLOTS: Final = 16_384
NODES: Final = 3


class RedisCluster:
    """Three masters that share the slots, and replicas of theirs that a test adds."""

    def __init__(self, **settings: str) -> None:
        self._settings = {"cluster-enabled": "yes", **settings}
        self._bus = _free_port()  # of the first node, which introduces all others
        self.nodes: list[RedisServer] = []
        self.replicas: list[RedisServer] = []
        try:
            for bus in (self._bus, _free_port(), _free_port()):
                self.nodes.append(self._node(bus))
            self._share_slots()
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0"

    def close(self) -> None:
        for node in self._all:
            node.close()

    def owner_of(self, key: str) -> RedisServer:
        """The node that has the slot of a key."""
        [owner] = [node for node in self._all if self._is_owner(node, self.slot_of(key))]
        return owner

    def slot_of(self, key: str) -> int:
        return int(str(_ask(self.nodes[0], "CLUSTER", "KEYSLOT", key)))

    def add_replica(self, of: RedisServer) -> RedisServer:
        """A node that follows another one, and has everything that it has."""
        replica = self._node(_free_port())
        self.replicas.append(replica)
        self._meet(replica)
        self._wait()
        _ask(replica, "CLUSTER", "REPLICATE", _id_of(of))
        until = time.monotonic() + STARTING
        while "'master_link_status': 'up'" not in str(_ask(replica, "INFO", "replication")):
            assert time.monotonic() < until, "the replica does not follow"
            time.sleep(0.05)
        return replica

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> Iterable[int]:
        """Move a slot with its keys to another node, some at a time; says how many have moved each time."""
        _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", _id_of(source))
        _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", _id_of(target))
        moved = 0
        while keys := _ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            assert isinstance(keys, list)
            _ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 30_000, "KEYS", *keys)
            moved += len(keys)
            yield moved
        # The new owner first: a slot whose old one has let go and whose new one does not know has no owner.
        for node in (target, source, *self.nodes):
            _ask(node, "CLUSTER", "SETSLOT", slot, "NODE", _id_of(target))

    @property
    def _all(self) -> list[RedisServer]:
        return [*self.nodes, *self.replicas]

    def _node(self, bus: int) -> RedisServer:
        return RedisServer(**self._settings, **{"cluster-port": str(bus)})

    def _meet(self, node: RedisServer) -> None:
        _ask(node, "CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self._bus)

    def _share_slots(self) -> None:
        share = SLOTS // NODES + 1
        for number, node in enumerate(self.nodes):
            last = min((number + 1) * share, SLOTS) - 1
            _ask(node, "CLUSTER", "ADDSLOTSRANGE", number * share, last)
            self._meet(node)

    def _wait(self) -> None:
        until = time.monotonic() + STARTING
        while not all(map(self._is_whole, self._all)):
            if time.monotonic() > until:
                raise RuntimeError("the cluster does not come together")
            time.sleep(0.05)

    def _is_whole(self, node: RedisServer) -> bool:
        info = str(_ask(node, "CLUSTER", "INFO"))
        return "cluster_state:ok" in info and f"cluster_known_nodes:{len(self._all)}" in info

    def _is_owner(self, node: RedisServer, slot: int) -> bool:
        """By what the node itself says; one that is away says nothing, and has none."""
        try:
            lines = str(_ask(node, "CLUSTER", "NODES")).splitlines()
        except redis.ConnectionError:
            return False
        [own] = [line.split() for line in lines if "myself" in line]
        if "master" not in own[2]:
            return False
        spans = [span.partition("-") for span in own[8:] if not span.startswith("[")]
        return any(int(first) <= slot <= int(last or first) for first, _, last in spans)


def _id_of(node: RedisServer) -> str:
    return str(_ask(node, "CLUSTER", "MYID"))


def _ask(node: RedisServer, *words: str | int) -> object:
    with redis.Redis(port=node.port) as client:
        answer = client.execute_command(*words)
    return answer.decode() if isinstance(answer, bytes) else answer
