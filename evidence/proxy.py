"""A network that can be made to fail: a proxy of ours between programs and a server.

Each `Proxy` has a port of its own, so that one worker can be cut off while all others go on. It is controlled
while it runs, from any thread; `heal` ends whatever was set.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Thread
from typing import Any, Final, TypeVar

T = TypeVar("T")

PIECE: Final = 65_536
STEPS_A_SECOND: Final = 20
# Closed with this, a socket forgets what it has not sent, and the other side is told of a reset.
_RESET: Final = struct.pack("ii", 1, 0)


class Way(StrEnum):
    """Where something goes: from a program to the server, or back."""

    ASKS = "asks"
    ANSWERS = "answers"


BOTH: Final = tuple(Way)


class Lane:
    """How one way is passed; nothing special at first."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.bytes_per_second: float | None = None
        self.is_swallowed = False
        self.is_free = asyncio.Event()
        self.is_free.set()


@dataclass
class Cut:
    """A reset of a connection that waits for something to pass, so many times."""

    fits: Callable[[bytes], bool]
    way: Way  # what it looks at
    is_after: bool  # what fits still arrives, and the answer to it does not
    times: int
    made: int = 0


@dataclass(eq=False)
class Link:
    """One connection of a program with its two ends; a second session where connects are doubled."""

    program: StreamWriter
    server: StreamWriter
    double: StreamWriter | None = None
    awaits: Cut | None = None  # its next answer gets lost
    open_ways: int = len(BOTH)


class Proxy:
    """Passes everything on between programs and the server on a port of this machine, until it is told not
    to. Delays are for each piece that is passed, one after the other: what both sides say to each other in
    turns takes that much longer each time."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[Link] = set()
        self._forgotten: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cuts: list[Cut] = []
        self._is_refusing = self._is_doubling = False
        self.connects = 0
        self._lanes = {way: Lane() for way in Way}
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self._thread.start()
        self._server = self._awaited(asyncio.start_server(self._serve, sock=listener))

    # What can be done to it

    def cut(self) -> int:
        """Reset every connection there is; how many those were."""
        return self._now(lambda: sum(map(self._reset, list(self._links))))

    def lose(self, fits: Callable[[bytes], bool] | bytes, way: Way, times: int = 1) -> Cut:
        """Reset a connection where something is to pass that fits, or has this in it; it does not arrive."""
        return self._wait_for(Cut(_fitting(fits), way, is_after=False, times=times))

    def lose_answer_to(self, fits: Callable[[bytes], bool] | bytes, times: int = 1) -> Cut:
        """Let what fits pass, and reset the connection when the server answers: it has happened, and the
        program does not know."""
        return self._wait_for(Cut(_fitting(fits), Way.ASKS, is_after=True, times=times))

    def _wait_for(self, cut: Cut) -> Cut:
        self._now(lambda: self._cuts.append(cut))
        return cut

    def refuse(self) -> None:
        """Reset all connections from now on."""
        self._is_refusing = True

    def hold(self, *ways: Way) -> None:
        """Keep everything back, also what new connections say; `heal` lets it go on to where it should."""
        for lane in self._chosen(ways):
            self._now(lane.is_free.clear)

    def swallow(self, *ways: Way) -> None:
        """Half-open connections: what is sent is taken, and is gone for ever."""
        for lane in self._chosen(ways):
            lane.is_swallowed = True

    def forget(self) -> None:
        """The same for the connections there are; new ones pass. So does a balancer that was restarted."""
        self._now(lambda: self._forgotten.update(self._links))

    def delay(self, seconds: float, *ways: Way) -> None:
        for lane in self._chosen(ways):
            lane.delay = seconds

    def throttle(self, bytes_per_second: float, *ways: Way) -> None:
        for lane in self._chosen(ways):
            lane.bytes_per_second = bytes_per_second

    def double(self) -> None:
        """From now on each connect reaches the server twice: a second session there hears what the program
        says first, until a server answers; no peer listens to what it says."""
        self._is_doubling = True

    def heal(self) -> None:
        """From now on everything is passed on. What was swallowed leaves connections behind whose two sides
        know different things; they are reset, as a network does that has forgotten them."""
        self._now(self._heal)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._awaited(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def sockets(self) -> int:
        """How many it has open for others at the moment."""
        return self._now(lambda: sum(2 + (link.double is not None) for link in self._links))

    # How it is done, on the loop

    def _heal(self) -> None:
        was_swallowed = any(lane.is_swallowed for lane in self._lanes.values())
        self._is_refusing = self._is_doubling = False
        self._cuts.clear()
        for lane in self._lanes.values():
            lane.delay, lane.bytes_per_second, lane.is_swallowed = 0.0, None, False
            lane.is_free.set()
        for link in list(self._links if was_swallowed else self._forgotten):
            self._reset(link)

    def _chosen(self, ways: tuple[Way, ...]) -> Iterator[Lane]:
        return (self._lanes[way] for way in ways or BOTH)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connects += 1
        if self._is_refusing:
            _reset(writer)
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        link = Link(program=writer, server=to_server)
        if self._is_doubling:
            with suppress(OSError):
                _, link.double = await asyncio.open_connection("127.0.0.1", self._target)
        self._links.add(link)
        for passing in (
            self._pass_on(link, reader, to_server, Way.ASKS),
            self._pass_on(link, from_server, writer, Way.ANSWERS),
        ):
            task = self._loop.create_task(passing)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, link: Link, source: StreamReader, target: StreamWriter, way: Way) -> None:
        with suppress(OSError):
            while data := await source.read(PIECE):
                if self._strikes(link, data, way):
                    self._reset(link)
                    return
                await self._pass(link, data, target, way)
        target.close()  # whatever was on its way arrives first
        link.open_ways -= 1
        if not link.open_ways:
            self._links.discard(link)
            self._forgotten.discard(link)

    def _strikes(self, link: Link, data: bytes, way: Way) -> bool:
        """Whether this is lost, and its connection with it."""
        if way is Way.ANSWERS and link.awaits is not None:
            link.awaits.made += 1
            return True
        for cut in self._cuts:
            if cut.way is not way or cut.made >= cut.times or not cut.fits(data):
                continue
            if not cut.is_after:
                cut.made += 1
                return True
            link.awaits = cut
        return False

    async def _pass(self, link: Link, data: bytes, target: StreamWriter, way: Way) -> None:
        lane = self._lanes[way]
        if lane.delay:
            await asyncio.sleep(lane.delay)
        await lane.is_free.wait()
        for piece in _pieces(data, lane.bytes_per_second):
            if lane.bytes_per_second is not None:
                await asyncio.sleep(len(piece) / lane.bytes_per_second)
            if lane.is_swallowed or link in self._forgotten:
                continue
            target.write(piece)
            await target.drain()
        if link.double is not None:
            if way is Way.ASKS:
                link.double.write(data)
            else:
                link.double.close()
                link.double = None

    def _reset(self, link: Link) -> bool:
        self._links.discard(link)
        self._forgotten.discard(link)
        for writer in filter(None, (link.program, link.server, link.double)):
            _reset(writer)
        return True

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            self._reset(link)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _now(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self._awaited(called())

    def _awaited(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _fitting(fits: Callable[[bytes], bool] | bytes) -> Callable[[bytes], bool]:
    return (lambda data: fits in data) if isinstance(fits, bytes) else fits


def _pieces(data: bytes, bytes_per_second: float | None) -> Iterator[bytes]:
    if bytes_per_second is None:
        yield data
        return
    size = max(1, int(bytes_per_second / STEPS_A_SECOND))
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _reset(writer: StreamWriter) -> None:
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
