"""How many jobs each stream has out. What is settled at this server makes room at once; what is settled at
another one, or lost, when somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set

from forebay.domain.lease import Lease


class StreamWindow:
    """The leases that one stream has handed out and that have not ended, as far as is known here."""

    def __init__(self, size: int, streams: dict[Lease, StreamWindow]) -> None:
        self._size = size
        self._streams = streams
        self._leases: dict[Lease, None] = {}
        self._changed = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more it may have."""
        return self._size - len(self._leases)

    @property
    def leases(self) -> Sequence[Lease]:
        return list(self._leases)

    def add(self, leases: Iterable[Lease]) -> None:
        """These were handed out."""
        for lease in leases:
            self._leases[lease] = None
            self._streams[lease] = self

    def retain(self, running: Set[Lease]) -> None:
        """Forget all but these."""
        for lease in self.leases:
            if lease not in running:
                self.remove(lease)

    def remove(self, lease: Lease) -> None:
        """This one has ended."""
        self._leases.pop(lease, None)
        self._streams.pop(lease, None)
        self._changed.set()

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait until one has ended; whether that was so in time."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        except TimeoutError:
            return False


class StreamWindows:
    """The windows of all streams of this server."""

    def __init__(self) -> None:
        self._streams: dict[Lease, StreamWindow] = {}

    def open(self, size: int) -> StreamWindow:
        """A window for a new stream."""
        return StreamWindow(size, self._streams)

    def close(self, window: StreamWindow) -> None:
        """Its stream is over; the leases that it has out are still their holder's."""
        window.retain(set())

    def remove_ended(self, leases: Iterable[Lease]) -> None:
        """These attempts are over."""
        for lease in leases:
            if (window := self._streams.get(lease)) is not None:
                window.remove(lease)
