"""Required roles: the roles that allow each operation of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forebay.domain.api_key import Role

PRODUCERS: Final = frozenset({Role.PRODUCE})
CONSUMERS: Final = frozenset({Role.CONSUME})
VIEWERS: Final = frozenset({Role.VIEW})
OPERATORS: Final = frozenset({Role.OPERATE})
ADMINS: Final = frozenset({Role.ADMIN})
ALL_ROLES: Final = frozenset(Role)
# Roles that allow an operation, by the name of its handler: one of them is enough. An operation without a row
# is forbidden to every key.
REQUIRED_ROLES: Final[Mapping[str, frozenset[Role]]] = {
    # Producers
    "enqueue": PRODUCERS,
    "enqueue_many": PRODUCERS,
    "wait": PRODUCERS | VIEWERS,
    "result": PRODUCERS | VIEWERS,
    "cancel": PRODUCERS | OPERATORS,
    "update_job": PRODUCERS | OPERATORS,
    # Consumers
    "claim": CONSUMERS,
    "give_back": CONSUMERS,
    "ack": CONSUMERS,
    "nack": CONSUMERS,
    "settle": CONSUMERS,
    "heartbeat": CONSUMERS,
    "extend": CONSUMERS,
    "peek": CONSUMERS | VIEWERS,
    # Producers, consumers and viewers
    "job": PRODUCERS | CONSUMERS | VIEWERS,
    "queue": PRODUCERS | CONSUMERS | VIEWERS,
    # Every key
    **dict.fromkeys(("session", "begin_session", "end_session"), ALL_ROLES),
    # Viewers
    **dict.fromkeys(
        (
            "queues",
            "queue_metrics",
            "all_metrics",
            "metric_series",
            "system_metrics",
            "exposition",
            "search",
            "dead_letters",
            "failure_groups",
            "gradual_revives",
            "gradual_revive",
            "schedules",
            "schedule",
            "preview_schedule",
            "graph",
            "stream",
            "schedule_runs",
            "workers",
            "commands",
            "limits",
            "alerts",
            "alert_rules",
        ),
        VIEWERS,
    ),
    # Operators: pause, resume, delete and revive what exists
    **dict.fromkeys(
        (
            "pause_queue",
            "resume_queue",
            "drain_queue",
            "purge_queue",
            "requeue",
            "bulk",
            "delete_job",
            "revive",
            "replay",
            "revive_dead",
            "purge_dead",
            "start_gradual_revive",
            "pause_gradual_revive",
            "resume_gradual_revive",
            "stop_gradual_revive",
            "pause_schedule",
            "resume_schedule",
            "fire_schedule",
            "command",
            "acknowledge_alert",
            "resolve_alert",
            "trigger_alert",
        ),
        OPERATORS,
    ),
    # Admins: change settings and definitions
    **dict.fromkeys(
        (
            "create_queue",
            "configure_queue",
            "delete_queue",
            "save_schedule",
            "remove_schedule",
            "set_limit",
            "remove_limit",
            "keys",
            "key",
            "create_key",
            "rotate_key",
            "revoke_key",
            "audit",
            "check_audit",
            "create_alert_rule",
            "save_alert_rule",
            "remove_alert_rule",
            "alert_channels",
            "save_alert_channel",
            "remove_alert_channel",
            "migrate",
            "record",
            "contents",
            "trace",
            "inspect",
            "sweep",
            "worker_state",
            "signal",
        ),
        ADMINS,
    ),
    # Workers: maintenance tasks
    "maintenance": CONSUMERS,
}
