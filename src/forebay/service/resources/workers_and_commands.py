"""Workers, and the commands sent to them."""

from __future__ import annotations

from forebay.domain.job import WorkerId
from forebay.domain.worker_command import CommandKind
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.workers_and_commands import (
    CommandList,
    CommandRequest,
    WorkerList,
    command_view,
    queue_name,
    worker_view,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store


class WorkerResource:
    """Workers that have registered with the store."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def workers(self, *, active_only: bool = True) -> WorkerList:
        """Return workers by start time; dead ones only without `active_only`."""

        def load(reader: Reader) -> WorkerList:
            now = reader.now()
            views = [worker_view(worker, now) for worker in reader.workers()]
            return WorkerList(
                workers=[view for view in views if not active_only or view.heartbeat_status != "dead"]
            )

        return await self._pool.read(load)

    async def command(self, request: CommandRequest, actor: str = "") -> CommandList:
        """Send a command to workers; raises WorkerNotFound."""
        workers = (
            None if request.workers is None else [WorkerId(name) for name in dict.fromkeys(request.workers)]
        )

        def send(store: Store) -> CommandList:
            sent = store.send_command(
                CommandKind(request.kind), workers, queue=queue_name(request.queue), actor=actor
            )
            return CommandList(commands=[command_view(command) for command in sent])

        return await self._pool.write(send)

    async def commands(self, ids: list[str]) -> CommandList:
        """Return commands with the responses of their workers; expired and unknown ones are left out."""
        found = await self._pool.read(lambda reader: reader.commands(ids))
        return CommandList(commands=[command_view(command) for command in found if command is not None])
