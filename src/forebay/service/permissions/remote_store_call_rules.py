"""Table of the permission rules of remote store calls, and the check before the body of a call is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forebay.service.caller import Caller
from forebay.service.permissions.remote_store_access import StoreAccess, StoreCallRule
from forebay.service.permissions.remote_store_read_rules import (
    dependencies,
    documents,
    history,
    job_rule,
    job_states,
    jobs,
    lanes,
    metrics,
    peek,
    progress,
    queues_rule,
    schedules,
    search,
)
from forebay.service.permissions.remote_store_write_rules import (
    AllQueuesRule,
    answer_command,
    drop_queue,
    heartbeat,
    insert,
    job_action_rule,
    lease_status,
    record_events,
    record_metrics,
    remove_worker,
    renew,
    save_queue,
    settle_and_claim,
    take_commands,
    update_job,
    write_document,
)


async def allow_all(_: StoreAccess, __: Any) -> None:
    return None


STORE_CALL_RULES: Final[Mapping[str, StoreCallRule]] = {
    "insert": insert,
    "settle_and_claim": settle_and_claim,
    "renew": renew,
    "lease_status": lease_status,
    "heartbeat": heartbeat,
    "remove_worker": remove_worker,
    "take_commands": take_commands,
    "answer_command": answer_command,
    # Maintenance, on jobs of all queues
    **dict.fromkeys(
        (
            *("sweep", "promote", "rescore", "prune", "acquire_maintenance", "read_clock"),
            *("chain_audit", "snapshot_queues", "prune_metrics"),
        ),
        AllQueuesRule("maintenance"),
    ),
    "record_metrics": record_metrics,
    # These enqueue jobs, in any queue
    **dict.fromkeys(("due_schedules", "fire_schedules"), AllQueuesRule("save_schedule")),
    "cancel": job_action_rule("cancel"),
    "update_job": update_job,
    "revive": job_action_rule("revive"),
    "delete": job_action_rule("delete_job"),
    "save_queue": save_queue,
    "drop_queue": drop_queue,
    "save_schedule": AllQueuesRule("save_schedule"),
    "drop_schedule": AllQueuesRule("remove_schedule"),
    "save_limit": AllQueuesRule("set_limit"),
    "drop_limit": AllQueuesRule("remove_limit"),
    "save_document": write_document,
    "drop_document": write_document,
    "send_command": AllQueuesRule("command"),
    "record_events": record_events,
    # Complete jobs of all queues, for administrators of the store
    **dict.fromkeys(("migrate", "import_jobs", "export_jobs"), AllQueuesRule("migrate")),
    "jobs": jobs,
    "job_states": job_states,
    "search": search,
    "counts": queues_rule("queues"),
    "queues": queues_rule("names"),
    "throughputs": queues_rule("queues"),
    "peek": peek,
    "lanes": lanes,
    "position": job_rule(None),
    "progress": progress,
    "history": history,
    "parents": dependencies,
    "dependants": dependencies,
    "first_in_sequence": AllQueuesRule("job"),
    "workers": AllQueuesRule("workers"),
    "commands": AllQueuesRule("commands"),
    "schedules": schedules,
    "schedule_runs": AllQueuesRule("schedule_runs"),
    "limits": AllQueuesRule("limits"),
    "limit_usages": AllQueuesRule("limits"),
    "documents": documents,
    "metrics": metrics,
    "last_metrics": allow_all,
    **dict.fromkeys(("audit", "audit_chain", "count_unchained"), AllQueuesRule("audit")),
    "archive": AllQueuesRule("search"),
    "health": AllQueuesRule("queues"),
    "server_usage": AllQueuesRule("queues"),
    "now": allow_all,
}
# For calls about some queues: the operation that a caller must be allowed for one queue at least.
_ANY_QUEUE_OPERATIONS: Final[Mapping[str, str]] = {
    "insert": "enqueue_many",
    "settle_and_claim": "claim",
    "renew": "heartbeat",
    "lease_status": "settle",
    **dict.fromkeys(
        ("heartbeat", "remove_worker", "take_commands", "answer_command", "record_metrics"), "claim"
    ),
    "save_queue": "pause_queue",  # a role that may configure a queue may pause it
    "drop_queue": "delete_queue",
    **dict.fromkeys(
        ("save_document", "drop_document"), "start_gradual_revive"
    ),  # a role for keys includes it
    "record_events": "record",
    "search": "search",
    "peek": "peek",
    "schedules": "schedules",
}


def check_operation(caller: Caller, operation: str) -> None:
    """Raise Forbidden for a call that this caller may make about no queue at all, before its body is read."""
    rule = STORE_CALL_RULES.get(operation)
    if isinstance(rule, AllQueuesRule):
        caller.check(rule.operation)
    elif operation in _ANY_QUEUE_OPERATIONS:
        caller.check_any_queue(_ANY_QUEUE_OPERATIONS[operation])
