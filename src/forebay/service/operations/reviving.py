"""Dead letters by what they died of, and their way back in batches."""

from __future__ import annotations

from collections.abc import Callable

from forebay.app import ramping
from forebay.app.grouping import failure_groups
from forebay.domain.ramp import Ramp
from forebay.service.operations.desk import Desk
from forebay.service.schema.reviving import (
    GroupList,
    GroupsRequest,
    RampList,
    RampRequest,
    RampShape,
    group_list,
    ramp_shape,
)
from forebay.stores.protocol import Reader, Store


class Reviving:
    """Failure groups and ramps. Whoever does the duties goes on with a ramp; that need not be this server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def groups(self, request: GroupsRequest) -> GroupList:
        """The newest dead letters that fit by what they died of."""
        query = request.where.query()
        found = await self._desk.at_length(lambda _, reader: failure_groups(reader, query, request.newest))
        return group_list(found)

    async def start(self, request: RampRequest, actor: str = "") -> RampShape:
        """Begin to put dead letters back in batches."""
        query, pace = request.where.query(), request.pace()
        ramp = await self._desk.at_length(
            lambda store, reader: ramping.start_ramp(
                store, reader, query, group=request.group, pace=pace, actor=actor
            )
        )
        return ramp_shape(ramp)

    async def ramps(self) -> RampList:
        """All ramps that are kept."""
        return RampList(ramps=[ramp_shape(ramp) for ramp in await self._desk.read(ramping.all_ramps)])

    async def ramp(self, name: str) -> RampShape:
        """One ramp; raises RampNotFound, like the next three."""
        return ramp_shape(await self._desk.read(lambda reader: ramping.find_ramp(reader, name)))

    async def pause(self, name: str, actor: str = "") -> RampShape:
        """Put no more back until it is resumed."""
        return await self._changed(lambda store, reader: ramping.pause_ramp(store, reader, name, actor=actor))

    async def resume(self, name: str, actor: str = "") -> RampShape:
        """Go on with one that was paused or has stopped."""
        return await self._changed(
            lambda store, reader: ramping.resume_ramp(store, reader, name, actor=actor)
        )

    async def stop(self, name: str, actor: str = "") -> RampShape:
        """End it; what was put back goes on."""
        return await self._changed(lambda store, reader: ramping.stop_ramp(store, reader, name, actor=actor))

    async def _changed(self, change: Callable[[Store, Reader], Ramp]) -> RampShape:
        # Not behind those who go through many jobs: whoever stops a ramp wants it stopped.
        return ramp_shape(
            await self._desk.use(
                lambda client: client.write(lambda store: client.read(lambda reader: change(store, reader)))
            )
        )
