"""The word lists of the house: read by tools/names.py, tests/house/test_names.py and the hook of pre-commit.

A word is refused when the glossary (docs/reference/glossary.md) has another one for the same thing and the
word has no second use here. It is refused in all folders: package, tests, tools, benchmarks, evidence,
examples and documents. A word that is ordinary English in prose is refused only as a name in Python.
Words that are ordinary English in names as well are in LEFT_TO_REVIEW, each with the reason.
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
    Word(("advice",), "remedy, diagnosis", only_in_names=True),
    Word(("aftermath", "aftermaths"), "dependency outbox, outbox entry"),
    Word(("amend", "amends", "amended", "amending", "amendment", "amendments"), "update"),
    Word(("beat", "beats", "beating"), "heartbeat"),
    Word(("asked",), "requested", only_in_names=True),
    Word(("bell", "bells", "clapper", "poke", "pokes", "poked", "poking"), "wake-up, notify"),
    Word(("beside",), "signal bus, or the name of the thing", only_in_names=True),
    Word(("borrowed", "borrowing"), "caller transaction"),
    Word(("bury", "buries", "buried", "burying", "morgue"), "mark dead, dead letters"),
    Word(("conduct", "conducts"), "execution policy"),
    Word(("dear",), "costly, token bucket", only_in_names=True),
    Word(("deed", "deeds"), "action"),
    Word(("desk", "desks"), "session, store pool"),
    Word(("duty", "duties"), "maintenance task"),
    Word(("ending", "endings"), "outcome, settlement", only_in_names=True),
    Word(("exchange", "exchanges", "exchanged"), "settle_and_claim, round trip", only_in_names=True),
    Word(("figures",), "stats, metrics, numbers"),
    Word(("firing",), "schedule run", only_in_names=True),
    Word(("firings",), "schedule runs"),
    Word(("freed",), "released", only_in_names=True),
    Word(("gate", "gates"), "lane"),
    Word(("gated", "ungated"), "in a lane"),
    Word(("hybrid",), "signal bus"),
    Word(("hot_order", "named_places"), "signal bus"),
    Word(("intake", "intakes"), "insert batch"),
    Word(("keeper", "keepers"), "manager, renewal"),
    Word(("lead", "leads"), "effective priority", only_in_names=True),
    Word(("lingering",), "the name of the state"),
    Word(("long_way", "short_way"), "fast path, slow path"),
    Word(("looked", "looking"), "scanned, loaded", only_in_names=True),
    Word(("lot", "lots"), "insert group", only_in_names=True),
    Word(("news",), "wake-up, notification, update"),
    Word(("noting",), "progress", only_in_names=True),
    Word(("once_key", "once_keys"), "idempotency key"),
    Word(("pace", "paces"), "throughput"),
    Word(("put_aside",), "parked"),
    Word(("pulse", "pulses"), "heartbeat status"),
    Word(("ramp", "ramps", "ramped", "ramping"), "gradual revive"),
    Word(("rings", "rung"), "wake-up, notify", only_in_names=True),
    Word(("said", "say", "says"), "message, report", only_in_names=True),
    Word(("seam", "seams"), "store contract"),
    Word(("sealed", "sealing", "unsealed"), "encrypted"),
    Word(("seat", "seats", "ticket", "tickets"), "slot, ownership"),
    Word(("sequel", "sequels"), "propagation"),
    Word(("shortcut", "shortcuts", "strange"), "fast path, slow path"),
    Word(("spent",), "charged, used up", only_in_names=True),
    Word(("spot", "spots"), "candidate, row address"),
    Word(("standing",), "lease status", only_in_names=True),
    Word(("steer", "steers", "steered", "steering"), "update, control"),
    Word(("stock", "stocks"), "snapshot, stats", only_in_names=True),
    Word(("straggler", "stragglers"), "dead letter, job of a dropped queue"),
    Word(("surplus",), "prefetch"),
    Word(("tally", "tallies", "tallied"), "counter, limit counters"),
    Word(("tell", "tells", "told"), "report, notify, send", only_in_names=True),
    Word(("throttled", "throttling"), "limited"),
    Word(("unnoted",), "without progress"),
    Word(("unsure",), "unchecked"),
    Word(("verdict", "verdicts"), "action result"),
    Word(("voice", "voices"), "progress"),
    Word(("whole_at",), "low-water mark"),
    Word(("want", "wants", "wish", "wishes"), "claim, request", only_in_names=True),
    Word(("whereabouts",), "position"),
)

# Words that the glossary replaces and no check refuses: they are ordinary English, in names as in prose. A
# reviewer sees whether the thing of the glossary is meant. The value is the ordinary meaning.
LEFT_TO_REVIEW: Final = {
    "alike": "equal; the shape of a group is an insert group",
    "ask": "put a question, as to a server; a worker claims",
    "behind": "later in an order, or on the other side of a proxy",
    "capped": "bounded; the column is age_capped",
    "closed": "no longer open: a connection, a file, a queue",
    "crowd": "many at once, as in `make evidence WHAT=crowd`; the table is the dependency outbox",
    "cursor": "position of a scan, as in claim cursor",
    "died_again": "dead once more: processes, jobs; a revived job has failed again",
    "end": "stop, or the last part; the end of an attempt is an outcome",
    "entry": "item of a log or an index; an entry of the lease table is a row",
    "floor": "lower bound of a number; the value of a scan is a low-water mark",
    "follow": "come after; ends of jobs are propagated",
    "gauge": "instrument of OpenTelemetry and Prometheus",
    "happened": "took place; numbers are stats",
    "head": "first part: of a table, a list, a text; a locked row is a candidate",
    "held": "an edge that waits for a revive, and past of hold",
    "hint": "remark that helps; a wake-up is one",
    "hold": "have, as a lock; a condition holds",
    "house": "the project, as in rules of the house",
    "joined": "put together, as texts; a transaction is the caller's",
    "keep": "not delete; a lease is renewed",
    "kept": "not deleted; past of keep",
    "line": "row of text; log line",
    "list": "sequence; job ends wait in the dependency outbox",
    "look": "read, see; a loop has ticks",
    "meet": "an edge is met",
    "moving": "present participle of move",
    "need": "require; an edge is a dependency",
    "note": "remark of a person; an attempt reports progress",
    "number": "count, or any integer; in a sequence it is a position",
    "once": "one time, or as soon as; the key is an idempotency key",
    "opened": "past of open; a payload is decrypted",
    "order": "sequence, or order by; the key of a job in it is its rank",
    "page": "page of results or of the dashboard; shared memory is the lease table",
    "parts": "pieces; of a token they are token_parts",
    "passed": "past of pass",
    "place": "location; a running job under a limit has a slot",
    "plain": "simple, as in plain text; the common case takes the fast path",
    "ring": "loop; one that wakes is a wake-up",
    "room": "space for more; a layer or a module is no room",
    "share": "part of a whole, or use together; a tenant has a fairness key",
    "special": "unlike others; it takes the slow path",
    "step": "part of a workflow or of a task; virtual time has its own steps",
    "take": "get; a worker claims",
    "taken_in": "locks and keys are taken in an order; jobs are imported",
    "throttle": "bound the bytes of a connection; jobs have limits",
    "turn": "one after the other takes a turn; a loop has ticks, a sequence positions",
    "unique": "only one; the key is a unique key",
    "whole": "complete",
    "within": "inside of, as a time; a caller transaction has no such name",
    "word": "word of a text; a hint is a wake-up",
    "wrapped": "decorated function; a payload is encrypted",
}

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
    ("src/forebay/compat/celery/options.py", "exchange"): "option of Celery, from AMQP",
    ("src/forebay/integrations/importers/celery_source.py", "exchange"): "exchange of AMQP",
    ("src/forebay/service/openid_client.py", "exchange"): "OAuth: a code is exchanged for tokens",
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
        ("service/grpc/request_messages.py", "extends the HTTP request of the same name"),
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
    __init__ audit_log caller_connection claim claim_cursor clock_readings concurrency_and_rate_limits
    connection dependency_edges dependency_propagation documents engine errors fairness insert insert_fast
    insert_graph job_actions job_ends_and_removal job_import job_import_and_export leases maintenance
    metrics progress queues reader rows schedules schema_setup_and_check search sequential_jobs settle
    settle_and_claim settle_and_claim_fast store transaction wakeups workers_and_commands
    """)
ENGINE_SPECIFICS: Final[dict[str, frozenset[str]]] = {
    "memory": frozenset({"event_log", "invariants", "job_heap", "state", "text_check", "undo_log"}),
    "sqlite": frozenset({"database_paths", "file_system_check", "waiting_writer", "worker_liveness_locks"}),
    "postgres": _set("""
        async_bridge binary_parameters cheap_autocommit_statements low_water_marks partitions placeholders
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
