"""The word lists of the house: read by tools/names.py, tests/house/test_names.py and the hook of pre-commit.

A word is refused when the glossary (docs/reference/glossary.md) has another one for the same thing and the
word has no second use here. Words with a second use, such as `hold`, are left to review.
"""

from __future__ import annotations

from typing import Final, NamedTuple


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Word(NamedTuple):
    """A refused word in all its forms, and the word to use."""

    forms: tuple[str, ...]
    use: str
    only_in_names: bool = False  # ordinary English in prose, private as a name in Python


WORDS: Final = (
    Word(("adopt", "adopts", "adopted", "adopting"), "import (a job), recover (a lease)"),
    Word(("aftermath", "aftermaths"), "dependency outbox, outbox entry"),
    Word(("amend", "amends", "amended", "amending", "amendment", "amendments"), "update"),
    Word(("beat", "beats", "beating"), "heartbeat"),
    Word(("asked",), "requested", only_in_names=True),
    Word(("bell", "bells", "clapper", "poke", "pokes", "poked", "poking"), "wake-up, notify"),
    Word(("beside",), "signal bus, or the name of the thing", only_in_names=True),
    Word(("bury", "buries", "buried", "burying", "morgue"), "mark dead, dead letters"),
    Word(("conduct", "conducts"), "execution policy"),
    Word(("deed", "deeds"), "action"),
    Word(("desk", "desks"), "session, store pool"),
    Word(("duty", "duties"), "maintenance task"),
    Word(("figures",), "stats, metrics, numbers"),
    Word(("firings",), "schedule runs"),
    Word(("freed",), "released", only_in_names=True),
    Word(("gate", "gates"), "lane"),
    Word(("gated", "ungated"), "in a lane"),
    Word(("hybrid",), "signal bus"),
    Word(("intake", "intakes"), "insert batch"),
    Word(("keeper", "keepers"), "manager, renewal"),
    Word(("lead", "leads"), "effective priority", only_in_names=True),
    Word(("lingering",), "the name of the state"),
    Word(("looked", "looking"), "scanned, loaded", only_in_names=True),
    Word(("lot", "lots"), "insert group", only_in_names=True),
    Word(("news",), "wake-up, notification, update"),
    Word(("once_key", "once_keys"), "idempotency key"),
    Word(("pace", "paces"), "throughput"),
    Word(("pulse", "pulses"), "heartbeat status"),
    Word(("ramp", "ramps", "ramped", "ramping"), "gradual revive"),
    Word(("said", "say", "says"), "message, report", only_in_names=True),
    Word(("seam", "seams"), "store contract"),
    Word(("sealed", "sealing", "unsealed"), "encrypted"),
    Word(("seat", "seats", "ticket", "tickets"), "slot, ownership"),
    Word(("sequel", "sequels"), "propagation"),
    Word(("shortcut", "shortcuts", "strange"), "fast path, slow path"),
    Word(("spent",), "charged, used up", only_in_names=True),
    Word(("spot", "spots"), "candidate, row address"),
    Word(("steer", "steers", "steered", "steering"), "update, control"),
    Word(("stock", "stocks"), "snapshot, stats", only_in_names=True),
    Word(("straggler", "stragglers"), "dead letter, job of a dropped queue"),
    Word(("tally", "tallies", "tallied"), "counter, limit counters"),
    Word(("tell", "tells", "told"), "report, notify, send", only_in_names=True),
    Word(("unnoted",), "without progress"),
    Word(("unsure",), "unchecked"),
    Word(("verdict", "verdicts"), "action result"),
    Word(("voice", "voices"), "progress"),
    Word(("want", "wants", "wish", "wishes"), "claim, request", only_in_names=True),
    Word(("whereabouts",), "position"),
)

# Software is named: a worker, the sweeper, another transaction. A few stay where a person is meant.
ANONYMOUS: Final = Word(
    (
        *("whoever", "whomever", "somebody", "nobody", "anybody", "everybody"),
        *("somebodys", "nobodys", "anybodys", "everybodys"),  # in names of tests
    ),
    "the actor: worker, sweeper, another transaction, the caller",
)
MAX_ANONYMOUS: Final = 30

# Refused words that mean something else where they stand: by a pattern of paths, with the reason.
OTHER_MEANING: Final[dict[tuple[str, str], str]] = {
    ("CHANGELOG.md", "beat"): "the old name of a setting, where the page says that it was renamed",
    ("docs/comparison.md", "beat"): "Celery beat, a scheduler of Celery's",
    ("docs/guide/importing.md", "beat"): "Celery beat, a scheduler of Celery's",
    ("docs/reference/glossary.md", "beat"): "Celery beat, a scheduler of Celery's",
    ("README.md", "gates"): "gates of a dam: the comparison at the start",
    ("src/forebay/compat/task_queue/*.py", "gate"): "shutdown gate: closed, it lets no call in",
    ("src/forebay/compat/celery/options.py", "beat"): "settings of Celery's: beat_schedule, beat_scheduler",
    ("tests/importers/test_celery_facade.py", "beat"): "beat_schedule, a setting of Celery's",
    ("tests/servers.py", "nobody"): "the user of Unix systems, for a server that root may not start",
    ("tests/worker/test_interrupted_calls.py", "gate"): "the shutdown gate of compat/task_queue",
}

# A docstring of a module names the thing in it; it does not begin with one of these.
QUESTION_WORDS: Final = ("What", "Who", "Whose", "Which", "Where", "How", "Why", "Whether")

# Modules and packages named by a gerund that is the established noun; their tests may be named so too.
GERUNDS: Final = {
    "masking": "the noun for hidden values, in logs as in databases",
    "testing": "the package that programs import in their tests, as in Django and NumPy",
    "tracing": "the noun of OpenTelemetry",
    "troubleshooting": "a page of the guide, which a test runs",
    "typing": "the noun of Python: tests of what type checkers see",
    "idle_polling": "polling is the noun: how often an idle worker looks at its store",
}
MAX_GERUNDS: Final = 12

# Public classes of one name: (a pattern of the paths that may have it, or "*"), with the reason.
TWINS: Final = {
    **dict.fromkeys(
        (
            *("CallerConnection", "Connection", "EdgeWriter", "HandleCache", "InsertBatch", "InsertGroup"),
            *("InsertRules", "QueueClaimer", "SettlementBatch", "StatementExecutor", "Transaction"),
        ),
        ("stores/*/*.py", "each engine has its own part of this name"),
    ),
    **dict.fromkeys(("Command", "Job"), ("integrations/django/*.py", "named by Django")),
    **dict.fromkeys(
        ("CreateQueueRequest", "EnqueueRequest", "HeartbeatRequest"),
        ("service/grpc/requests.py", "extends the HTTP request of the same name"),
    ),
}
# Names that other libraries have given: a class here may have the name of one elsewhere.
FOREIGN: Final = "compat/*.py"

# Functions that act are imperative verbs. What counts: see `participle_functions` in tools/names.py.
MAX_PARTICIPLES: Final = 30
PARTICIPLES: Final = _set("""
    been begun bent born bought brought built caught chosen done drawn driven fallen felt forgotten
    fought found given gone got grown heard held hidden hung kept known laid led lent lit lost made meant
    met overwritten paid put rebuilt redone resent rewritten run said seen sent set shown sold sought
    spent spoken stolen struck stuck taken taught thought thrown told undone understood withdrawn woken
    won worn wound written
    """) - {"put", "run", "set"}  # imperatives as well
NO_PARTICIPLES: Final = _set(
    "bed bleed breed embed exceed feed heed need proceed seed shed shred speed succeed weed"
)
PARTICLES: Final = _set("""
    after ahead among apart as aside at away back before behind between beyond by down for from in into
    of off on onto out over through to together under until up upon with within without
    """)

# The files of an engine: parts of the store contract, and what one driver or engine needs besides.
ENGINE_FILES: Final = _set("""
    __init__ audit_log caller_connection claim claim_cursor clock_readings connection dependency_edges
    dependency_propagation documents engine errors fairness insert insert_fast insert_graph
    job_actions job_ends_and_removal job_import job_import_and_export job_sequences leases limits maintenance
    metrics progress queues reader rows schedules schema search settle settle_and_claim settle_and_claim_fast
    store transaction wakeups workers_and_commands
    """)
ENGINE_SPECIFICS: Final[dict[str, frozenset[str]]] = {
    "memory": frozenset({"event_log", "invariants", "job_heap", "state", "text_check", "undo_log"}),
    "sqlite": frozenset({"database_paths", "file_system_check", "waiting_writer", "worker_locks"}),
    "postgres": _set("""
        async_bridge autocommit binary_parameters low_water_marks partitions placeholders
        prepared_statement row_locks server_address session
        """),
    "redis": frozenset(
        {
            "circuit_breaker",
            "key_layout",
            "limit_definitions",
            "lua_scripts",
            "pruner",
            "server_address",
            "server_check",
        }
    ),
    "remote": frozenset({"http_client"}),
}
