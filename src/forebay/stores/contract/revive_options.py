"""Options of `Store.revive` as engines pass them on."""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay.domain.job import Job, QueueName, check_not_reserved
from forebay.domain.job_validation import check_queue_name

ENDED_SINCE: Final = "it has ended since"


class ReviveOptions(NamedTuple):
    """Options of `Store.revive`."""

    queue: QueueName | None = None
    delay_ms: int = 0
    reset: bool = True
    actor: str = ""
    dependants: bool = False
    ended_before: int | None = None

    def check(self) -> None:
        """Raise InvalidJob for a queue that no job can be put into."""
        if self.queue is not None:
            check_queue_name(self.queue)
            check_not_reserved(self.queue)

    def reason_to_skip(self, job: Job) -> str:
        """Return why a final job is not revived, or an empty text: it ended after the revive began."""
        is_over = self.ended_before is not None and (job.finished_at or 0) >= self.ended_before
        return ENDED_SINCE if is_over else ""


REVIVE_NOW: Final = ReviveOptions()
