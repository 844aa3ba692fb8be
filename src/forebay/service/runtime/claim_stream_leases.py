"""Unsettled leases of each claim stream, as its window. A settlement at this server makes room at once. A
settlement at another server, or a lost lease, is noticed by a periodic check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set

from forebay.domain.lease import Lease


class StreamWindow:
    """Leases that one stream has handed out and that have not ended, as far as this server knows."""

    def __init__(self, size: int, streams: dict[Lease, StreamWindow]) -> None:
        self._size = size
        self._streams = streams
        self._leases: dict[Lease, None] = {}
        self._changed = asyncio.Event()

    @property
    def room(self) -> int:
        """Number of further jobs that the stream may have."""
        return self._size - len(self._leases)

    @property
    def leases(self) -> Sequence[Lease]:
        return list(self._leases)

    def add(self, leases: Iterable[Lease]) -> None:
        """Add leases that were handed out."""
        for lease in leases:
            self._leases[lease] = None
            self._streams[lease] = self

    def retain(self, running: Set[Lease]) -> None:
        """Remove all leases but these."""
        for lease in self.leases:
            if lease not in running:
                self.remove(lease)

    def remove(self, lease: Lease) -> None:
        """Remove a lease that has ended."""
        self._leases.pop(lease, None)
        self._streams.pop(lease, None)
        self._changed.set()

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait until a lease ends; return false after this time."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        except TimeoutError:
            return False


class StreamWindows:
    """Windows of all streams of this server."""

    def __init__(self) -> None:
        self._streams: dict[Lease, StreamWindow] = {}

    def open(self, size: int) -> StreamWindow:
        """Return a window for a new stream."""
        return StreamWindow(size, self._streams)

    def close(self, window: StreamWindow) -> None:
        """Forget an ended stream; its leases stay with their holder."""
        window.retain(set())

    def remove_ended(self, leases: Iterable[Lease]) -> None:
        """Remove the leases of ended attempts."""
        for lease in leases:
            if (window := self._streams.get(lease)) is not None:
                window.remove(lease)
