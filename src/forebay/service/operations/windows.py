"""How many jobs each stream has out. What is settled at this server makes room at once; what is settled at
another one, or lost, when somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set

from forebay.domain.lease import Lease


class Window:
    """The leases that one stream has handed out and that have not ended, as far as is known here."""

    def __init__(self, size: int, streams: dict[Lease, Window]) -> None:
        self._size = size
        self._streams = streams
        self._held: dict[Lease, None] = {}
        self._changed = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more it may have."""
        return self._size - len(self._held)

    @property
    def leases(self) -> Sequence[Lease]:
        return list(self._held)

    def hold(self, leases: Iterable[Lease]) -> None:
        """These were handed out."""
        for lease in leases:
            self._held[lease] = None
            self._streams[lease] = self

    def keep(self, running: Set[Lease]) -> None:
        """Forget all but these."""
        for lease in self.leases:
            if lease not in running:
                self.forget(lease)

    def forget(self, lease: Lease) -> None:
        """This one has ended."""
        self._held.pop(lease, None)
        self._streams.pop(lease, None)
        self._changed.set()

    async def has_changed(self, seconds: float) -> bool:
        """Wait until one has ended; whether that was so in time."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        except TimeoutError:
            return False


class Windows:
    """The windows of all streams of this server."""

    def __init__(self) -> None:
        self._streams: dict[Lease, Window] = {}

    def opened(self, size: int) -> Window:
        """A window for a new stream."""
        return Window(size, self._streams)

    def close(self, window: Window) -> None:
        """Its stream is over; the leases that it has out are still their holder's."""
        window.keep(set())

    def tell_ended(self, leases: Iterable[Lease]) -> None:
        """These attempts are over."""
        for lease in leases:
            if (window := self._streams.get(lease)) is not None:
                window.forget(lease)
