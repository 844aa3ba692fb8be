"""A cluster of three real nodes for tests."""

from __future__ import annotations

import time
from typing import Final

import redis

from tests.redis_server import RedisServer
from tests.servers import _free_port

STARTING: Final = 60.0
SLOTS: Final = 16_384
NODES: Final = 3


class RedisCluster:
    """Three masters that share the slots."""

    def __init__(self) -> None:
        self.nodes: list[RedisServer] = []
        try:
            buses = [_free_port() for _ in range(NODES)]
            for bus in buses:
                settings = {"cluster-enabled": "yes", "cluster-port": str(bus)}
                self.nodes.append(RedisServer(**settings))
            self._share_slots(buses[0])
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0"

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _share_slots(self, bus: int) -> None:
        share = SLOTS // NODES + 1
        for number, node in enumerate(self.nodes):
            with redis.Redis(port=node.port) as client:
                last = min((number + 1) * share, SLOTS) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, bus)

    def _wait(self) -> None:
        until = time.monotonic() + STARTING
        while not all(map(self._is_whole, self.nodes)):
            if time.monotonic() > until:
                raise RuntimeError("the cluster does not come together")
            time.sleep(0.05)

    def _is_whole(self, node: RedisServer) -> bool:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            info = str(client.execute_command("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and f"cluster_known_nodes:{NODES}" in info
