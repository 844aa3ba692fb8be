import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnqueueRequest(_message.Message):
    __slots__ = ("job", "with_position")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WITH_POSITION_FIELD_NUMBER: _ClassVar[int]
    job: NewJob
    with_position: bool
    def __init__(self, job: _Optional[_Union[NewJob, _Mapping[str, _Any]]] = ..., with_position: _Optional[bool] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("task", "queue", "args_json", "kwargs_json", "id", "priority", "delay_seconds", "run_at", "deadline_at", "expires_at", "timeout_seconds", "lease_seconds", "max_retries", "retry_policy", "unique_key", "unique_until", "idempotency_key", "metadata_json", "tags", "correlation_id", "parent_id", "limit_keys", "depends_on", "allow_missing", "sequence", "client", "cost", "without")
    class LimitKeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    task: str
    queue: str
    args_json: str
    kwargs_json: str
    id: str
    priority: int
    delay_seconds: float
    run_at: _timestamp_pb2.Timestamp
    deadline_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    timeout_seconds: float
    lease_seconds: float
    max_retries: int
    retry_policy: str
    unique_key: str
    unique_until: str
    idempotency_key: str
    metadata_json: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    correlation_id: str
    parent_id: str
    limit_keys: _containers.ScalarMap[str, str]
    depends_on: _containers.RepeatedCompositeFieldContainer[Dependency]
    allow_missing: bool
    sequence: str
    client: str
    cost: int
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task: _Optional[str] = ..., queue: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., id: _Optional[str] = ..., priority: _Optional[int] = ..., delay_seconds: _Optional[float] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., timeout_seconds: _Optional[float] = ..., lease_seconds: _Optional[float] = ..., max_retries: _Optional[int] = ..., retry_policy: _Optional[str] = ..., unique_key: _Optional[str] = ..., unique_until: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., metadata_json: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., correlation_id: _Optional[str] = ..., parent_id: _Optional[str] = ..., limit_keys: _Optional[_Mapping[str, str]] = ..., depends_on: _Optional[_Iterable[_Union[Dependency, _Mapping[str, _Any]]]] = ..., allow_missing: _Optional[bool] = ..., sequence: _Optional[str] = ..., client: _Optional[str] = ..., cost: _Optional[int] = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class Dependency(_message.Message):
    __slots__ = ("id", "index", "on_failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    index: int
    on_failure: str
    def __init__(self, id: _Optional[str] = ..., index: _Optional[int] = ..., on_failure: _Optional[str] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("id", "queue", "state", "is_duplicate", "index", "position", "position_is_exact", "starts_in_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    STARTS_IN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    state: str
    is_duplicate: bool
    index: int
    position: int
    position_is_exact: bool
    starts_in_seconds: float
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[str] = ..., is_duplicate: _Optional[bool] = ..., index: _Optional[int] = ..., position: _Optional[int] = ..., position_is_exact: _Optional[bool] = ..., starts_in_seconds: _Optional[float] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("jobs", "atomic")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    atomic: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping[str, _Any]]]] = ..., atomic: _Optional[bool] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("accepted", "rejected")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    accepted: _containers.RepeatedCompositeFieldContainer[EnqueueResponse]
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedJob]
    def __init__(self, accepted: _Optional[_Iterable[_Union[EnqueueResponse, _Mapping[str, _Any]]]] = ..., rejected: _Optional[_Iterable[_Union[RejectedJob, _Mapping[str, _Any]]]] = ...) -> None: ...

class RejectedJob(_message.Message):
    __slots__ = ("index", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    problem: Problem
    def __init__(self, index: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping[str, _Any]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("type", "title", "status", "code", "detail", "field", "holder", "retry_after_seconds")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    type: str
    title: str
    status: int
    code: str
    detail: str
    field: str
    holder: str
    retry_after_seconds: int
    def __init__(self, type: _Optional[str] = ..., title: _Optional[str] = ..., status: _Optional[int] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ..., field: _Optional[str] = ..., holder: _Optional[str] = ..., retry_after_seconds: _Optional[int] = ...) -> None: ...

class GetTaskStatusRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "queue", "task", "state", "status", "is_final", "priority", "attempt", "run_number", "failures", "crashes", "max_retries", "created_at", "updated_at", "run_at", "started_at", "finished_at", "deadline_at", "expires_at", "lease_expires_at", "worker", "timeout_seconds", "unique_key", "idempotency_key", "metadata_json", "tags", "correlation_id", "parent_id", "limit_keys", "sequence", "cost", "cancel_reason", "reason", "attempts", "events", "depends_on", "dependants", "progress", "args_json", "kwargs_json", "payload_base64", "payload_error")
    class LimitKeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CRASHES_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BASE64_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    task: str
    state: str
    status: str
    is_final: bool
    priority: int
    attempt: int
    run_number: int
    failures: int
    crashes: int
    max_retries: int
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    run_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    deadline_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    lease_expires_at: _timestamp_pb2.Timestamp
    worker: str
    timeout_seconds: float
    unique_key: str
    idempotency_key: str
    metadata_json: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    correlation_id: str
    parent_id: str
    limit_keys: _containers.ScalarMap[str, str]
    sequence: str
    cost: int
    cancel_reason: str
    reason: str
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    depends_on: _containers.RepeatedCompositeFieldContainer[Edge]
    dependants: _containers.RepeatedCompositeFieldContainer[Edge]
    progress: Progress
    args_json: str
    kwargs_json: str
    payload_base64: str
    payload_error: str
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., state: _Optional[str] = ..., status: _Optional[str] = ..., is_final: _Optional[bool] = ..., priority: _Optional[int] = ..., attempt: _Optional[int] = ..., run_number: _Optional[int] = ..., failures: _Optional[int] = ..., crashes: _Optional[int] = ..., max_retries: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., worker: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., unique_key: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., metadata_json: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., correlation_id: _Optional[str] = ..., parent_id: _Optional[str] = ..., limit_keys: _Optional[_Mapping[str, str]] = ..., sequence: _Optional[str] = ..., cost: _Optional[int] = ..., cancel_reason: _Optional[str] = ..., reason: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping[str, _Any]]]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping[str, _Any]]]] = ..., depends_on: _Optional[_Iterable[_Union[Edge, _Mapping[str, _Any]]]] = ..., dependants: _Optional[_Iterable[_Union[Edge, _Mapping[str, _Any]]]] = ..., progress: _Optional[_Union[Progress, _Mapping[str, _Any]]] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., payload_base64: _Optional[str] = ..., payload_error: _Optional[str] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("attempt", "outcome", "worker", "started_at", "ended_at", "duration_seconds", "error_type", "error", "traceback")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    outcome: str
    worker: str
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    duration_seconds: float
    error_type: str
    error: str
    traceback: str
    def __init__(self, attempt: _Optional[int] = ..., outcome: _Optional[str] = ..., worker: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., duration_seconds: _Optional[float] = ..., error_type: _Optional[str] = ..., error: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "at", "attempt", "actor", "detail")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    at: _timestamp_pb2.Timestamp
    attempt: int
    actor: str
    detail: str
    def __init__(self, kind: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., attempt: _Optional[int] = ..., actor: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Edge(_message.Message):
    __slots__ = ("id", "edge", "on_failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    edge: str
    on_failure: str
    def __init__(self, id: _Optional[str] = ..., edge: _Optional[str] = ..., on_failure: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("done", "total", "message", "at")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    done: float
    total: float
    message: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, done: _Optional[float] = ..., total: _Optional[float] = ..., message: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ...) -> None: ...

class WaitForCompletionRequest(_message.Message):
    __slots__ = ("id", "timeout_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    timeout_seconds: float
    def __init__(self, id: _Optional[str] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class WatchTaskRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetTaskGraphRequest(_message.Message):
    __slots__ = ("id", "limit")
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    id: str
    limit: int
    def __init__(self, id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("jobs", "edges", "is_complete")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobListItem]
    edges: _containers.RepeatedCompositeFieldContainer[GraphEdge]
    is_complete: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobListItem, _Mapping[str, _Any]]]] = ..., edges: _Optional[_Iterable[_Union[GraphEdge, _Mapping[str, _Any]]]] = ..., is_complete: _Optional[bool] = ...) -> None: ...

class JobListItem(_message.Message):
    __slots__ = ("id", "queue", "task", "state", "priority", "attempt", "failures", "created_at", "run_at", "started_at", "finished_at", "duration_seconds", "worker", "reason", "tags")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    task: str
    state: str
    priority: int
    attempt: int
    failures: int
    created_at: _timestamp_pb2.Timestamp
    run_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    duration_seconds: float
    worker: str
    reason: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., state: _Optional[str] = ..., priority: _Optional[int] = ..., attempt: _Optional[int] = ..., failures: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., duration_seconds: _Optional[float] = ..., worker: _Optional[str] = ..., reason: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class GraphEdge(_message.Message):
    __slots__ = ("parent", "child", "edge", "on_failure")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    parent: str
    child: str
    edge: str
    on_failure: str
    def __init__(self, parent: _Optional[str] = ..., child: _Optional[str] = ..., edge: _Optional[str] = ..., on_failure: _Optional[str] = ...) -> None: ...

class GetTaskResultRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ResultResponse(_message.Message):
    __slots__ = ("id", "result_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    id: str
    result_json: str
    def __init__(self, id: _Optional[str] = ..., result_json: _Optional[str] = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("id", "reason", "dependants", "force")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    dependants: bool
    force: bool
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ..., dependants: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class ActionResponse(_message.Message):
    __slots__ = ("id", "applied", "state", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    applied: bool
    state: str
    reason: str
    def __init__(self, id: _Optional[str] = ..., applied: _Optional[bool] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UpdateTaskPriorityRequest(_message.Message):
    __slots__ = ("id", "priority", "delay_seconds", "run_at", "metadata_json", "queue")
    ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    id: str
    priority: int
    delay_seconds: float
    run_at: _timestamp_pb2.Timestamp
    metadata_json: str
    queue: str
    def __init__(self, id: _Optional[str] = ..., priority: _Optional[int] = ..., delay_seconds: _Optional[float] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., metadata_json: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class DequeueRequest(_message.Message):
    __slots__ = ("wait_seconds", "queues", "tasks", "lease_seconds")
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    wait_seconds: float
    queues: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    lease_seconds: float
    def __init__(self, wait_seconds: _Optional[float] = ..., queues: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[str]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class ClaimResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[ClaimedJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[ClaimedJob, _Mapping[str, _Any]]]] = ...) -> None: ...

class ClaimedJob(_message.Message):
    __slots__ = ("id", "lease", "queue", "task", "attempt", "run_number", "failures", "priority", "lease_expires_at", "heartbeat_seconds", "timeout_seconds", "deadline_at", "metadata_json", "tags", "correlation_id", "args_json", "kwargs_json", "payload_base64", "payload_error")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BASE64_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    queue: str
    task: str
    attempt: int
    run_number: int
    failures: int
    priority: int
    lease_expires_at: _timestamp_pb2.Timestamp
    heartbeat_seconds: float
    timeout_seconds: float
    deadline_at: _timestamp_pb2.Timestamp
    metadata_json: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    correlation_id: str
    args_json: str
    kwargs_json: str
    payload_base64: str
    payload_error: str
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., attempt: _Optional[int] = ..., run_number: _Optional[int] = ..., failures: _Optional[int] = ..., priority: _Optional[int] = ..., lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., heartbeat_seconds: _Optional[float] = ..., timeout_seconds: _Optional[float] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., metadata_json: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., correlation_id: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., payload_base64: _Optional[str] = ..., payload_error: _Optional[str] = ...) -> None: ...

class DequeueBatchRequest(_message.Message):
    __slots__ = ("queues", "tasks", "lease_seconds", "limit", "wait_seconds")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    lease_seconds: float
    limit: int
    wait_seconds: float
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[str]] = ..., lease_seconds: _Optional[float] = ..., limit: _Optional[int] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class DequeueStreamRequest(_message.Message):
    __slots__ = ("window", "queues", "tasks", "lease_seconds")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    window: int
    queues: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    lease_seconds: float
    def __init__(self, window: _Optional[int] = ..., queues: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[str]] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class AckTaskRequest(_message.Message):
    __slots__ = ("id", "lease", "result_json", "cost")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    result_json: str
    cost: int
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., result_json: _Optional[str] = ..., cost: _Optional[int] = ...) -> None: ...

class SettleResult(_message.Message):
    __slots__ = ("id", "is_kept", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    IS_KEPT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: str
    is_kept: bool
    problem: Problem
    def __init__(self, id: _Optional[str] = ..., is_kept: _Optional[bool] = ..., problem: _Optional[_Union[Problem, _Mapping[str, _Any]]] = ...) -> None: ...

class NackTaskRequest(_message.Message):
    __slots__ = ("id", "lease", "error", "error_type", "traceback", "requeue", "retry_after_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    error: str
    error_type: str
    traceback: str
    requeue: bool
    retry_after_seconds: float
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., error: _Optional[str] = ..., error_type: _Optional[str] = ..., traceback: _Optional[str] = ..., requeue: _Optional[bool] = ..., retry_after_seconds: _Optional[float] = ...) -> None: ...

class SettleTasksRequest(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping[str, _Any]]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("id", "lease", "outcome", "result_json", "error", "error_type", "traceback", "delay_seconds", "cost")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    outcome: str
    result_json: str
    error: str
    error_type: str
    traceback: str
    delay_seconds: float
    cost: int
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., outcome: _Optional[str] = ..., result_json: _Optional[str] = ..., error: _Optional[str] = ..., error_type: _Optional[str] = ..., traceback: _Optional[str] = ..., delay_seconds: _Optional[float] = ..., cost: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("settled",)
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    settled: _containers.RepeatedCompositeFieldContainer[SettleResult]
    def __init__(self, settled: _Optional[_Iterable[_Union[SettleResult, _Mapping[str, _Any]]]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("id", "lease", "extend_seconds", "done", "total", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    EXTEND_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    extend_seconds: float
    done: float
    total: float
    message: str
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., extend_seconds: _Optional[float] = ..., done: _Optional[float] = ..., total: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("lease_expires_at", "heartbeat_seconds", "cancel")
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    lease_expires_at: _timestamp_pb2.Timestamp
    heartbeat_seconds: float
    cancel: str
    def __init__(self, lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., heartbeat_seconds: _Optional[float] = ..., cancel: _Optional[str] = ...) -> None: ...

class ExtendVisibilityRequest(_message.Message):
    __slots__ = ("id", "lease", "additional_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ADDITIONAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease: str
    additional_seconds: float
    def __init__(self, id: _Optional[str] = ..., lease: _Optional[str] = ..., additional_seconds: _Optional[float] = ...) -> None: ...

class PeekNextRequest(_message.Message):
    __slots__ = ("queue", "limit")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobListItem]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobListItem, _Mapping[str, _Any]]]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueueList(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping[str, _Any]]]] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "state", "settings_json", "counts", "drain_seconds", "is_reordering", "created_at", "updated_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IS_REORDERING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    settings_json: str
    counts: Counts
    drain_seconds: float
    is_reordering: bool
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., settings_json: _Optional[str] = ..., counts: _Optional[_Union[Counts, _Mapping[str, _Any]]] = ..., drain_seconds: _Optional[float] = ..., is_reordering: _Optional[bool] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("scheduled", "blocked", "pending", "running", "retrying", "completed", "dead", "cancelled", "live", "total")
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    scheduled: int
    blocked: int
    pending: int
    running: int
    retrying: int
    completed: int
    dead: int
    cancelled: int
    live: int
    total: int
    def __init__(self, scheduled: _Optional[int] = ..., blocked: _Optional[int] = ..., pending: _Optional[int] = ..., running: _Optional[int] = ..., retrying: _Optional[int] = ..., completed: _Optional[int] = ..., dead: _Optional[int] = ..., cancelled: _Optional[int] = ..., live: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetQueueMetricsRequest(_message.Message):
    __slots__ = ("queue", "window_seconds")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    window_seconds: float
    def __init__(self, queue: _Optional[str] = ..., window_seconds: _Optional[float] = ...) -> None: ...

class QueueMetrics(_message.Message):
    __slots__ = ("queue", "window_seconds", "counts", "claimed", "completed", "failed", "lost", "retried", "dead", "cancelled", "snoozed", "error_rate", "errors", "wait", "run", "enqueued_per_second", "throughput_per_second", "next_pending_age_seconds", "consumers_active", "pending_by_priority", "oldest_pending_age_seconds", "rate_limited_requests", "tasks")
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PendingByPriorityEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SNOOZED_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    NEXT_PENDING_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    PENDING_BY_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PENDING_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMITED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    window_seconds: float
    counts: Counts
    claimed: int
    completed: int
    failed: int
    lost: int
    retried: int
    dead: int
    cancelled: int
    snoozed: int
    error_rate: float
    errors: _containers.ScalarMap[str, int]
    wait: DurationStats
    run: DurationStats
    enqueued_per_second: float
    throughput_per_second: float
    next_pending_age_seconds: float
    consumers_active: int
    pending_by_priority: _containers.ScalarMap[str, int]
    oldest_pending_age_seconds: float
    rate_limited_requests: int
    tasks: _containers.RepeatedCompositeFieldContainer[TaskMetrics]
    def __init__(self, queue: _Optional[str] = ..., window_seconds: _Optional[float] = ..., counts: _Optional[_Union[Counts, _Mapping[str, _Any]]] = ..., claimed: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., lost: _Optional[int] = ..., retried: _Optional[int] = ..., dead: _Optional[int] = ..., cancelled: _Optional[int] = ..., snoozed: _Optional[int] = ..., error_rate: _Optional[float] = ..., errors: _Optional[_Mapping[str, int]] = ..., wait: _Optional[_Union[DurationStats, _Mapping[str, _Any]]] = ..., run: _Optional[_Union[DurationStats, _Mapping[str, _Any]]] = ..., enqueued_per_second: _Optional[float] = ..., throughput_per_second: _Optional[float] = ..., next_pending_age_seconds: _Optional[float] = ..., consumers_active: _Optional[int] = ..., pending_by_priority: _Optional[_Mapping[str, int]] = ..., oldest_pending_age_seconds: _Optional[float] = ..., rate_limited_requests: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskMetrics, _Mapping[str, _Any]]]] = ...) -> None: ...

class DurationStats(_message.Message):
    __slots__ = ("count", "average_ms", "p50_ms", "p95_ms", "p99_ms", "min_ms", "max_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_MS_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    min_ms: float
    max_ms: float
    def __init__(self, count: _Optional[int] = ..., average_ms: _Optional[float] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., min_ms: _Optional[float] = ..., max_ms: _Optional[float] = ...) -> None: ...

class TaskMetrics(_message.Message):
    __slots__ = ("task", "claimed", "completed", "failed", "lost", "retried", "dead", "cancelled", "snoozed", "error_rate", "errors", "wait", "run")
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SNOOZED_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    task: str
    claimed: int
    completed: int
    failed: int
    lost: int
    retried: int
    dead: int
    cancelled: int
    snoozed: int
    error_rate: float
    errors: _containers.ScalarMap[str, int]
    wait: DurationStats
    run: DurationStats
    def __init__(self, task: _Optional[str] = ..., claimed: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., lost: _Optional[int] = ..., retried: _Optional[int] = ..., dead: _Optional[int] = ..., cancelled: _Optional[int] = ..., snoozed: _Optional[int] = ..., error_rate: _Optional[float] = ..., errors: _Optional[_Mapping[str, int]] = ..., wait: _Optional[_Union[DurationStats, _Mapping[str, _Any]]] = ..., run: _Optional[_Union[DurationStats, _Mapping[str, _Any]]] = ...) -> None: ...

class ListQueueMetricsRequest(_message.Message):
    __slots__ = ("window_seconds",)
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    window_seconds: float
    def __init__(self, window_seconds: _Optional[float] = ...) -> None: ...

class QueueMetricsList(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueMetrics]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueMetrics, _Mapping[str, _Any]]]] = ...) -> None: ...

class GetQueueMetricsTimeSeriesRequest(_message.Message):
    __slots__ = ("metrics", "queue", "task", "start", "end", "resolution_seconds")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    queue: str
    task: str
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    resolution_seconds: float
    def __init__(self, metrics: _Optional[_Iterable[str]] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., resolution_seconds: _Optional[float] = ...) -> None: ...

class SeriesResponse(_message.Message):
    __slots__ = ("start", "end", "resolution_seconds", "times", "series")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    resolution_seconds: float
    times: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    series: _containers.RepeatedCompositeFieldContainer[Series]
    def __init__(self, start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., resolution_seconds: _Optional[float] = ..., times: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]]] = ..., series: _Optional[_Iterable[_Union[Series, _Mapping[str, _Any]]]] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("name", "unit", "values_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    VALUES_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    values_json: str
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., values_json: _Optional[str] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping[str, _Any]]] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("mode", "weight", "lease_seconds", "max_length", "default_priority", "min_priority", "max_priority", "aging_seconds", "max_aging_bonus", "retry_penalty", "deadline_weight", "deadline_horizon_seconds", "keep_finished_seconds", "keep_dead_seconds", "archive", "keep_archive_seconds", "enqueue_rate", "enqueue_burst", "client_rate", "client_burst", "fairness_weights", "promote_per_second", "without")
    class FairnessWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MIN_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_AGING_BONUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_HORIZON_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FINISHED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_DEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ARCHIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUE_RATE_FIELD_NUMBER: _ClassVar[int]
    ENQUEUE_BURST_FIELD_NUMBER: _ClassVar[int]
    CLIENT_RATE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_BURST_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    mode: str
    weight: int
    lease_seconds: float
    max_length: int
    default_priority: int
    min_priority: int
    max_priority: int
    aging_seconds: float
    max_aging_bonus: float
    retry_penalty: float
    deadline_weight: float
    deadline_horizon_seconds: float
    keep_finished_seconds: float
    keep_dead_seconds: float
    archive: bool
    keep_archive_seconds: float
    enqueue_rate: int
    enqueue_burst: int
    client_rate: int
    client_burst: int
    fairness_weights: _containers.ScalarMap[str, int]
    promote_per_second: int
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, mode: _Optional[str] = ..., weight: _Optional[int] = ..., lease_seconds: _Optional[float] = ..., max_length: _Optional[int] = ..., default_priority: _Optional[int] = ..., min_priority: _Optional[int] = ..., max_priority: _Optional[int] = ..., aging_seconds: _Optional[float] = ..., max_aging_bonus: _Optional[float] = ..., retry_penalty: _Optional[float] = ..., deadline_weight: _Optional[float] = ..., deadline_horizon_seconds: _Optional[float] = ..., keep_finished_seconds: _Optional[float] = ..., keep_dead_seconds: _Optional[float] = ..., archive: _Optional[bool] = ..., keep_archive_seconds: _Optional[float] = ..., enqueue_rate: _Optional[int] = ..., enqueue_burst: _Optional[int] = ..., client_rate: _Optional[int] = ..., client_burst: _Optional[int] = ..., fairness_weights: _Optional[_Mapping[str, int]] = ..., promote_per_second: _Optional[int] = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateQueueConfigRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping[str, _Any]]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DropResponse(_message.Message):
    __slots__ = ("name", "live_jobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    live_jobs: int
    def __init__(self, name: _Optional[str] = ..., live_jobs: _Optional[int] = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DrainQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("name", "where", "dry_run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    name: str
    where: JobFilter
    dry_run: bool
    def __init__(self, name: _Optional[str] = ..., where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class JobFilter(_message.Message):
    __slots__ = ("queues", "states", "tasks", "priority_from", "priority_to", "created_from", "created_before", "finished_before", "unique_key", "idempotency_key", "correlation_id", "parent_id", "tags", "metadata_json", "text")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FROM_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TO_FIELD_NUMBER: _ClassVar[int]
    CREATED_FROM_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    priority_from: int
    priority_to: int
    created_from: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    finished_before: _timestamp_pb2.Timestamp
    unique_key: str
    idempotency_key: str
    correlation_id: str
    parent_id: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    metadata_json: str
    text: str
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[str]] = ..., priority_from: _Optional[int] = ..., priority_to: _Optional[int] = ..., created_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., finished_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., unique_key: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., correlation_id: _Optional[str] = ..., parent_id: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., metadata_json: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class BulkResponse(_message.Message):
    __slots__ = ("matched", "matched_is_exact", "affected", "dry_run", "busy")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    AFFECTED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    matched: int
    matched_is_exact: bool
    affected: int
    dry_run: bool
    busy: int
    def __init__(self, matched: _Optional[int] = ..., matched_is_exact: _Optional[bool] = ..., affected: _Optional[int] = ..., dry_run: _Optional[bool] = ..., busy: _Optional[int] = ...) -> None: ...

class RequeueTasksRequest(_message.Message):
    __slots__ = ("name", "where", "dry_run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    name: str
    where: JobFilter
    dry_run: bool
    def __init__(self, name: _Optional[str] = ..., where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SearchTasksRequest(_message.Message):
    __slots__ = ("where", "limit", "after", "with_total")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITH_TOTAL_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    limit: int
    after: str
    with_total: bool
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., with_total: _Optional[bool] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs", "after", "has_more", "scanned_back_to", "total", "total_is_exact")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    SCANNED_BACK_TO_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobListItem]
    after: str
    has_more: bool
    scanned_back_to: _timestamp_pb2.Timestamp
    total: int
    total_is_exact: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobListItem, _Mapping[str, _Any]]]] = ..., after: _Optional[str] = ..., has_more: _Optional[bool] = ..., scanned_back_to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., total: _Optional[int] = ..., total_is_exact: _Optional[bool] = ...) -> None: ...

class BulkTasksRequest(_message.Message):
    __slots__ = ("action", "where", "all", "dry_run", "reason", "queue", "delay_seconds", "reset")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    action: str
    where: JobFilter
    all: bool
    dry_run: bool
    reason: str
    queue: str
    delay_seconds: float
    reset: bool
    def __init__(self, action: _Optional[str] = ..., where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., all: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., reason: _Optional[str] = ..., queue: _Optional[str] = ..., delay_seconds: _Optional[float] = ..., reset: _Optional[bool] = ...) -> None: ...

class DeleteTaskRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReviveTaskRequest(_message.Message):
    __slots__ = ("id", "queue", "delay_seconds", "reset", "dependants")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    delay_seconds: float
    reset: bool
    dependants: bool
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., delay_seconds: _Optional[float] = ..., reset: _Optional[bool] = ..., dependants: _Optional[bool] = ...) -> None: ...

class ReplayTaskRequest(_message.Message):
    __slots__ = ("id", "args_json", "kwargs_json", "queue", "priority", "delay_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    args_json: str
    kwargs_json: str
    queue: str
    priority: int
    delay_seconds: float
    def __init__(self, id: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., delay_seconds: _Optional[float] = ...) -> None: ...

class ListDeadLetterTasksRequest(_message.Message):
    __slots__ = ("where", "limit", "after", "with_total")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITH_TOTAL_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    limit: int
    after: str
    with_total: bool
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., with_total: _Optional[bool] = ...) -> None: ...

class RequeueFromDeadLetterRequest(_message.Message):
    __slots__ = ("where", "dry_run", "group")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    dry_run: bool
    group: str
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., dry_run: _Optional[bool] = ..., group: _Optional[str] = ...) -> None: ...

class PurgeDeadLetterQueueRequest(_message.Message):
    __slots__ = ("where", "dry_run", "group")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    dry_run: bool
    group: str
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., dry_run: _Optional[bool] = ..., group: _Optional[str] = ...) -> None: ...

class ListFailureGroupsRequest(_message.Message):
    __slots__ = ("where", "newest")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    newest: int
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., newest: _Optional[int] = ...) -> None: ...

class FailureGroupList(_message.Message):
    __slots__ = ("groups", "jobs", "is_complete", "others")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[FailureGroup]
    jobs: int
    is_complete: bool
    others: int
    def __init__(self, groups: _Optional[_Iterable[_Union[FailureGroup, _Mapping[str, _Any]]]] = ..., jobs: _Optional[int] = ..., is_complete: _Optional[bool] = ..., others: _Optional[int] = ...) -> None: ...

class FailureGroup(_message.Message):
    __slots__ = ("id", "message", "frames", "jobs", "tasks", "first_at", "last_at", "example_id", "example_reason")
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    message: str
    frames: _containers.RepeatedScalarFieldContainer[str]
    jobs: int
    tasks: _containers.ScalarMap[str, int]
    first_at: _timestamp_pb2.Timestamp
    last_at: _timestamp_pb2.Timestamp
    example_id: str
    example_reason: str
    def __init__(self, id: _Optional[str] = ..., message: _Optional[str] = ..., frames: _Optional[_Iterable[str]] = ..., jobs: _Optional[int] = ..., tasks: _Optional[_Mapping[str, int]] = ..., first_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., last_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., example_id: _Optional[str] = ..., example_reason: _Optional[str] = ...) -> None: ...

class StartGradualReviveRequest(_message.Message):
    __slots__ = ("where", "group", "initial_batch", "growth_factor", "max_batch", "every_seconds", "max_failure_percent")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    where: JobFilter
    group: str
    initial_batch: int
    growth_factor: float
    max_batch: int
    every_seconds: float
    max_failure_percent: float
    def __init__(self, where: _Optional[_Union[JobFilter, _Mapping[str, _Any]]] = ..., group: _Optional[str] = ..., initial_batch: _Optional[int] = ..., growth_factor: _Optional[float] = ..., max_batch: _Optional[int] = ..., every_seconds: _Optional[float] = ..., max_failure_percent: _Optional[float] = ...) -> None: ...

class GradualRevive(_message.Message):
    __slots__ = ("name", "state", "reason", "group", "queues", "initial_batch", "growth_factor", "max_batch", "every_seconds", "max_failure_percent", "started_at", "started_by", "next_at", "ended_at", "batches", "scanned", "revived", "waiting", "completed", "failed_again", "refused", "removed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_BY_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    REVIVED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_AGAIN_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    reason: str
    group: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    initial_batch: int
    growth_factor: float
    max_batch: int
    every_seconds: float
    max_failure_percent: float
    started_at: _timestamp_pb2.Timestamp
    started_by: str
    next_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    batches: int
    scanned: int
    revived: int
    waiting: int
    completed: int
    failed_again: int
    refused: int
    removed: int
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., group: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., initial_batch: _Optional[int] = ..., growth_factor: _Optional[float] = ..., max_batch: _Optional[int] = ..., every_seconds: _Optional[float] = ..., max_failure_percent: _Optional[float] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., started_by: _Optional[str] = ..., next_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., batches: _Optional[int] = ..., scanned: _Optional[int] = ..., revived: _Optional[int] = ..., waiting: _Optional[int] = ..., completed: _Optional[int] = ..., failed_again: _Optional[int] = ..., refused: _Optional[int] = ..., removed: _Optional[int] = ...) -> None: ...

class ListGradualRevivesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GradualReviveList(_message.Message):
    __slots__ = ("gradual_revives",)
    GRADUAL_REVIVES_FIELD_NUMBER: _ClassVar[int]
    gradual_revives: _containers.RepeatedCompositeFieldContainer[GradualRevive]
    def __init__(self, gradual_revives: _Optional[_Iterable[_Union[GradualRevive, _Mapping[str, _Any]]]] = ...) -> None: ...

class GetGradualReviveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PauseGradualReviveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeGradualReviveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class StopGradualReviveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScheduleList(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping[str, _Any]]]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "when", "cron", "every_seconds", "at", "task", "queue", "priority", "metadata_json", "timezone", "start_at", "end_at", "jitter_seconds", "is_paused", "is_declared", "next_run_at", "last_run_at", "last_job_id", "overlap", "catch_up", "catch_up_limit", "catch_up_seconds", "max_runs", "enqueued_runs", "skipped_runs", "failed_runs", "created_at", "updated_at", "args_json", "kwargs_json", "payload_base64", "payload_error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    JITTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    IS_DECLARED_FIELD_NUMBER: _ClassVar[int]
    NEXT_RUN_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_RUNS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RUNS_FIELD_NUMBER: _ClassVar[int]
    FAILED_RUNS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BASE64_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    when: str
    cron: str
    every_seconds: float
    at: _timestamp_pb2.Timestamp
    task: str
    queue: str
    priority: int
    metadata_json: str
    timezone: str
    start_at: _timestamp_pb2.Timestamp
    end_at: _timestamp_pb2.Timestamp
    jitter_seconds: float
    is_paused: bool
    is_declared: bool
    next_run_at: _timestamp_pb2.Timestamp
    last_run_at: _timestamp_pb2.Timestamp
    last_job_id: str
    overlap: str
    catch_up: str
    catch_up_limit: int
    catch_up_seconds: float
    max_runs: int
    enqueued_runs: int
    skipped_runs: int
    failed_runs: int
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    args_json: str
    kwargs_json: str
    payload_base64: str
    payload_error: str
    def __init__(self, name: _Optional[str] = ..., when: _Optional[str] = ..., cron: _Optional[str] = ..., every_seconds: _Optional[float] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., task: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., metadata_json: _Optional[str] = ..., timezone: _Optional[str] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., end_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., jitter_seconds: _Optional[float] = ..., is_paused: _Optional[bool] = ..., is_declared: _Optional[bool] = ..., next_run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., last_run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., last_job_id: _Optional[str] = ..., overlap: _Optional[str] = ..., catch_up: _Optional[str] = ..., catch_up_limit: _Optional[int] = ..., catch_up_seconds: _Optional[float] = ..., max_runs: _Optional[int] = ..., enqueued_runs: _Optional[int] = ..., skipped_runs: _Optional[int] = ..., failed_runs: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., payload_base64: _Optional[str] = ..., payload_error: _Optional[str] = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SaveScheduleRequest(_message.Message):
    __slots__ = ("name", "task", "queue", "args_json", "kwargs_json", "priority", "metadata_json", "cron", "every_seconds", "at", "timezone", "start_at", "end_at", "jitter_seconds", "catch_up", "catch_up_limit", "catch_up_seconds", "overlap", "max_runs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    JITTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    task: str
    queue: str
    args_json: str
    kwargs_json: str
    priority: int
    metadata_json: str
    cron: str
    every_seconds: float
    at: _timestamp_pb2.Timestamp
    timezone: str
    start_at: _timestamp_pb2.Timestamp
    end_at: _timestamp_pb2.Timestamp
    jitter_seconds: float
    catch_up: str
    catch_up_limit: int
    catch_up_seconds: float
    overlap: str
    max_runs: int
    def __init__(self, name: _Optional[str] = ..., task: _Optional[str] = ..., queue: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., priority: _Optional[int] = ..., metadata_json: _Optional[str] = ..., cron: _Optional[str] = ..., every_seconds: _Optional[float] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., timezone: _Optional[str] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., end_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., jitter_seconds: _Optional[float] = ..., catch_up: _Optional[str] = ..., catch_up_limit: _Optional[int] = ..., catch_up_seconds: _Optional[float] = ..., overlap: _Optional[str] = ..., max_runs: _Optional[int] = ...) -> None: ...

class PreviewScheduleRequest(_message.Message):
    __slots__ = ("name", "runs", "task", "queue", "args_json", "kwargs_json", "priority", "metadata_json", "cron", "every_seconds", "at", "timezone", "start_at", "end_at", "jitter_seconds", "catch_up", "catch_up_limit", "catch_up_seconds", "overlap", "max_runs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    JITTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    runs: int
    task: str
    queue: str
    args_json: str
    kwargs_json: str
    priority: int
    metadata_json: str
    cron: str
    every_seconds: float
    at: _timestamp_pb2.Timestamp
    timezone: str
    start_at: _timestamp_pb2.Timestamp
    end_at: _timestamp_pb2.Timestamp
    jitter_seconds: float
    catch_up: str
    catch_up_limit: int
    catch_up_seconds: float
    overlap: str
    max_runs: int
    def __init__(self, name: _Optional[str] = ..., runs: _Optional[int] = ..., task: _Optional[str] = ..., queue: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., priority: _Optional[int] = ..., metadata_json: _Optional[str] = ..., cron: _Optional[str] = ..., every_seconds: _Optional[float] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., timezone: _Optional[str] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., end_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., jitter_seconds: _Optional[float] = ..., catch_up: _Optional[str] = ..., catch_up_limit: _Optional[int] = ..., catch_up_seconds: _Optional[float] = ..., overlap: _Optional[str] = ..., max_runs: _Optional[int] = ...) -> None: ...

class PreviewResponse(_message.Message):
    __slots__ = ("when", "runs")
    WHEN_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    when: str
    runs: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    def __init__(self, when: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]]] = ...) -> None: ...

class RemoveScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("applied",)
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    def __init__(self, applied: _Optional[bool] = ...) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class FireScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListScheduleRunsRequest(_message.Message):
    __slots__ = ("name", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    limit: int
    def __init__(self, name: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ScheduleRunList(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[ScheduleRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[ScheduleRun, _Mapping[str, _Any]]]] = ...) -> None: ...

class ScheduleRun(_message.Message):
    __slots__ = ("planned_at", "status", "job_id", "reason", "runs")
    PLANNED_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    planned_at: _timestamp_pb2.Timestamp
    status: str
    job_id: str
    reason: str
    runs: int
    def __init__(self, planned_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., status: _Optional[str] = ..., job_id: _Optional[str] = ..., reason: _Optional[str] = ..., runs: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("with_dead",)
    WITH_DEAD_FIELD_NUMBER: _ClassVar[int]
    with_dead: bool
    def __init__(self, with_dead: _Optional[bool] = ...) -> None: ...

class WorkerList(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping[str, _Any]]]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("id", "host", "pid", "state", "heartbeat_status", "queues", "paused", "running", "slots", "stuck", "abandoned", "completed", "failed", "memory", "cpu", "started_at", "heartbeat_at", "recent")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AT_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    pid: int
    state: str
    heartbeat_status: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    paused: _containers.RepeatedScalarFieldContainer[str]
    running: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    stuck: int
    abandoned: int
    completed: int
    failed: int
    memory: int
    cpu: float
    started_at: _timestamp_pb2.Timestamp
    heartbeat_at: _timestamp_pb2.Timestamp
    recent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., heartbeat_status: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., paused: _Optional[_Iterable[str]] = ..., running: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., stuck: _Optional[int] = ..., abandoned: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., memory: _Optional[int] = ..., cpu: _Optional[float] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., heartbeat_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., recent: _Optional[_Iterable[str]] = ...) -> None: ...

class SendCommandRequest(_message.Message):
    __slots__ = ("all_workers", "kind", "workers", "queue")
    ALL_WORKERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    all_workers: bool
    kind: str
    workers: _containers.RepeatedScalarFieldContainer[str]
    queue: str
    def __init__(self, all_workers: _Optional[bool] = ..., kind: _Optional[str] = ..., workers: _Optional[_Iterable[str]] = ..., queue: _Optional[str] = ...) -> None: ...

class CommandList(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    def __init__(self, commands: _Optional[_Iterable[_Union[Command, _Mapping[str, _Any]]]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "worker", "kind", "sent_at", "expires_at", "delivered_at", "response")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_AT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    id: str
    worker: str
    kind: str
    sent_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    delivered_at: _timestamp_pb2.Timestamp
    response: str
    def __init__(self, id: _Optional[str] = ..., worker: _Optional[str] = ..., kind: _Optional[str] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., delivered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., response: _Optional[str] = ...) -> None: ...

class GetCommandsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListLimitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LimitList(_message.Message):
    __slots__ = ("limits",)
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    limits: _containers.RepeatedCompositeFieldContainer[LimitUsage]
    def __init__(self, limits: _Optional[_Iterable[_Union[LimitUsage, _Mapping[str, _Any]]]] = ...) -> None: ...

class LimitUsage(_message.Message):
    __slots__ = ("scope", "concurrency", "rate", "per_seconds", "burst", "state", "running", "tokens", "waiting", "waiting_workers")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_WORKERS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    concurrency: int
    rate: int
    per_seconds: float
    burst: int
    state: str
    running: int
    tokens: int
    waiting: int
    waiting_workers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scope: _Optional[str] = ..., concurrency: _Optional[int] = ..., rate: _Optional[int] = ..., per_seconds: _Optional[float] = ..., burst: _Optional[int] = ..., state: _Optional[str] = ..., running: _Optional[int] = ..., tokens: _Optional[int] = ..., waiting: _Optional[int] = ..., waiting_workers: _Optional[_Iterable[str]] = ...) -> None: ...

class SetLimitRequest(_message.Message):
    __slots__ = ("scope", "concurrency", "rate", "per_seconds", "burst")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    scope: str
    concurrency: int
    rate: int
    per_seconds: float
    burst: int
    def __init__(self, scope: _Optional[str] = ..., concurrency: _Optional[int] = ..., rate: _Optional[int] = ..., per_seconds: _Optional[float] = ..., burst: _Optional[int] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("scope", "concurrency", "rate", "per_seconds", "burst")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    scope: str
    concurrency: int
    rate: int
    per_seconds: float
    burst: int
    def __init__(self, scope: _Optional[str] = ..., concurrency: _Optional[int] = ..., rate: _Optional[int] = ..., per_seconds: _Optional[float] = ..., burst: _Optional[int] = ...) -> None: ...

class RemoveLimitRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class ListAlertsRequest(_message.Message):
    __slots__ = ("severity", "acknowledged", "all", "active", "limit")
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    severity: str
    acknowledged: bool
    all: bool
    active: bool
    limit: int
    def __init__(self, severity: _Optional[str] = ..., acknowledged: _Optional[bool] = ..., all: _Optional[bool] = ..., active: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class AlertList(_message.Message):
    __slots__ = ("alerts",)
    ALERTS_FIELD_NUMBER: _ClassVar[int]
    alerts: _containers.RepeatedCompositeFieldContainer[Alert]
    def __init__(self, alerts: _Optional[_Iterable[_Union[Alert, _Mapping[str, _Any]]]] = ...) -> None: ...

class Alert(_message.Message):
    __slots__ = ("id", "severity", "source", "message", "condition", "rule", "is_active", "triggered_at", "acknowledged_at", "acknowledged_by", "resolved_at", "resolved_by", "metadata_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_AT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_AT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_BY_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_AT_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_BY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    id: str
    severity: str
    source: str
    message: str
    condition: str
    rule: str
    is_active: bool
    triggered_at: _timestamp_pb2.Timestamp
    acknowledged_at: _timestamp_pb2.Timestamp
    acknowledged_by: str
    resolved_at: _timestamp_pb2.Timestamp
    resolved_by: str
    metadata_json: str
    def __init__(self, id: _Optional[str] = ..., severity: _Optional[str] = ..., source: _Optional[str] = ..., message: _Optional[str] = ..., condition: _Optional[str] = ..., rule: _Optional[str] = ..., is_active: _Optional[bool] = ..., triggered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., acknowledged_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., acknowledged_by: _Optional[str] = ..., resolved_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., resolved_by: _Optional[str] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class TriggerAlertRequest(_message.Message):
    __slots__ = ("kind", "message", "severity", "details_json")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    DETAILS_JSON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    severity: str
    details_json: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., severity: _Optional[str] = ..., details_json: _Optional[str] = ...) -> None: ...

class AcknowledgeAlertRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ResolveAlertRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListAlertRulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AlertRuleList(_message.Message):
    __slots__ = ("rules", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RULES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[AlertRule]
    metrics: _containers.ScalarMap[str, str]
    def __init__(self, rules: _Optional[_Iterable[_Union[AlertRule, _Mapping[str, _Any]]]] = ..., metrics: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AlertRule(_message.Message):
    __slots__ = ("id", "name", "condition", "severity", "window_seconds", "hold_for_seconds", "cooldown_seconds", "enabled", "queue", "task", "per", "is_builtin")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FOR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PER_FIELD_NUMBER: _ClassVar[int]
    IS_BUILTIN_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    condition: str
    severity: str
    window_seconds: float
    hold_for_seconds: float
    cooldown_seconds: float
    enabled: bool
    queue: str
    task: str
    per: str
    is_builtin: bool
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., condition: _Optional[str] = ..., severity: _Optional[str] = ..., window_seconds: _Optional[float] = ..., hold_for_seconds: _Optional[float] = ..., cooldown_seconds: _Optional[float] = ..., enabled: _Optional[bool] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., per: _Optional[str] = ..., is_builtin: _Optional[bool] = ...) -> None: ...

class CreateAlertRuleRequest(_message.Message):
    __slots__ = ("name", "condition", "severity", "window_seconds", "hold_for_seconds", "cooldown_seconds", "enabled", "queue", "task", "per", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FOR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    condition: str
    severity: str
    window_seconds: float
    hold_for_seconds: float
    cooldown_seconds: float
    enabled: bool
    queue: str
    task: str
    per: str
    id: str
    def __init__(self, name: _Optional[str] = ..., condition: _Optional[str] = ..., severity: _Optional[str] = ..., window_seconds: _Optional[float] = ..., hold_for_seconds: _Optional[float] = ..., cooldown_seconds: _Optional[float] = ..., enabled: _Optional[bool] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., per: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class SaveAlertRuleRequest(_message.Message):
    __slots__ = ("id", "name", "condition", "severity", "window_seconds", "hold_for_seconds", "cooldown_seconds", "enabled", "queue", "task", "per")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FOR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PER_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    condition: str
    severity: str
    window_seconds: float
    hold_for_seconds: float
    cooldown_seconds: float
    enabled: bool
    queue: str
    task: str
    per: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., condition: _Optional[str] = ..., severity: _Optional[str] = ..., window_seconds: _Optional[float] = ..., hold_for_seconds: _Optional[float] = ..., cooldown_seconds: _Optional[float] = ..., enabled: _Optional[bool] = ..., queue: _Optional[str] = ..., task: _Optional[str] = ..., per: _Optional[str] = ...) -> None: ...

class RemoveAlertRuleRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListAlertChannelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChannelList(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    def __init__(self, channels: _Optional[_Iterable[_Union[Channel, _Mapping[str, _Any]]]] = ...) -> None: ...

class Channel(_message.Message):
    __slots__ = ("name", "kind", "severity", "enabled", "url", "secret", "to", "sender", "host", "port", "tls", "username", "password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    severity: str
    enabled: bool
    url: str
    secret: str
    to: _containers.RepeatedScalarFieldContainer[str]
    sender: str
    host: str
    port: int
    tls: str
    username: str
    password: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., severity: _Optional[str] = ..., enabled: _Optional[bool] = ..., url: _Optional[str] = ..., secret: _Optional[str] = ..., to: _Optional[_Iterable[str]] = ..., sender: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., tls: _Optional[str] = ..., username: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class SaveAlertChannelRequest(_message.Message):
    __slots__ = ("name", "kind", "severity", "enabled", "url", "secret", "to", "sender", "host", "port", "tls", "username", "password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    severity: str
    enabled: bool
    url: str
    secret: str
    to: _containers.RepeatedScalarFieldContainer[str]
    sender: str
    host: str
    port: int
    tls: str
    username: str
    password: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., severity: _Optional[str] = ..., enabled: _Optional[bool] = ..., url: _Optional[str] = ..., secret: _Optional[str] = ..., to: _Optional[_Iterable[str]] = ..., sender: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., tls: _Optional[str] = ..., username: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class RemoveAlertChannelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeyList(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping[str, _Any]]]] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("name", "state", "grants", "created_at", "expires_at", "revoked_at", "used_at", "old_until", "rate", "burst", "max_waits", "max_streams", "bytes_rate", "max_connections")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    USED_AT_FIELD_NUMBER: _ClassVar[int]
    OLD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    used_at: _timestamp_pb2.Timestamp
    old_until: _timestamp_pb2.Timestamp
    rate: int
    burst: int
    max_waits: int
    max_streams: int
    bytes_rate: int
    max_connections: int
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., used_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., old_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., rate: _Optional[int] = ..., burst: _Optional[int] = ..., max_waits: _Optional[int] = ..., max_streams: _Optional[int] = ..., bytes_rate: _Optional[int] = ..., max_connections: _Optional[int] = ...) -> None: ...

class GetKeyRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("name", "grants", "lasts_seconds", "rate", "burst", "max_waits", "max_streams", "bytes_rate", "max_connections")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    lasts_seconds: float
    rate: int
    burst: int
    max_waits: int
    max_streams: int
    bytes_rate: int
    max_connections: int
    def __init__(self, name: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., lasts_seconds: _Optional[float] = ..., rate: _Optional[int] = ..., burst: _Optional[int] = ..., max_waits: _Optional[int] = ..., max_streams: _Optional[int] = ..., bytes_rate: _Optional[int] = ..., max_connections: _Optional[int] = ...) -> None: ...

class KeyWithToken(_message.Message):
    __slots__ = ("token", "name", "state", "grants", "created_at", "expires_at", "revoked_at", "used_at", "old_until", "rate", "burst", "max_waits", "max_streams", "bytes_rate", "max_connections")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    USED_AT_FIELD_NUMBER: _ClassVar[int]
    OLD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    token: str
    name: str
    state: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    used_at: _timestamp_pb2.Timestamp
    old_until: _timestamp_pb2.Timestamp
    rate: int
    burst: int
    max_waits: int
    max_streams: int
    bytes_rate: int
    max_connections: int
    def __init__(self, token: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., used_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., old_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., rate: _Optional[int] = ..., burst: _Optional[int] = ..., max_waits: _Optional[int] = ..., max_streams: _Optional[int] = ..., bytes_rate: _Optional[int] = ..., max_connections: _Optional[int] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("name", "grace_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    grace_seconds: float
    def __init__(self, name: _Optional[str] = ..., grace_seconds: _Optional[float] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SearchAuditRequest(_message.Message):
    __slots__ = ("kinds", "all", "actor", "request", "queue", "job_id", "since", "until", "limit", "after")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    actor: str
    request: str
    queue: str
    job_id: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    limit: int
    after: int
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., actor: _Optional[str] = ..., request: _Optional[str] = ..., queue: _Optional[str] = ..., job_id: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., limit: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("lines", "after", "has_more")
    LINES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    after: int
    has_more: bool
    def __init__(self, lines: _Optional[_Iterable[_Union[AuditEntry, _Mapping[str, _Any]]]] = ..., after: _Optional[int] = ..., has_more: _Optional[bool] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("number", "at", "kind", "actor", "request", "queue", "job_id", "detail", "before_json", "after_json")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_JSON_FIELD_NUMBER: _ClassVar[int]
    AFTER_JSON_FIELD_NUMBER: _ClassVar[int]
    number: int
    at: _timestamp_pb2.Timestamp
    kind: str
    actor: str
    request: str
    queue: str
    job_id: str
    detail: str
    before_json: str
    after_json: str
    def __init__(self, number: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping[str, _Any]]] = ..., kind: _Optional[str] = ..., actor: _Optional[str] = ..., request: _Optional[str] = ..., queue: _Optional[str] = ..., job_id: _Optional[str] = ..., detail: _Optional[str] = ..., before_json: _Optional[str] = ..., after_json: _Optional[str] = ...) -> None: ...

class VerifyAuditRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class AuditCheckResponse(_message.Message):
    __slots__ = ("is_sound", "lines", "position", "hash", "unchained", "flaw_position", "flaw_number", "reason", "next_after")
    IS_SOUND_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    UNCHAINED_FIELD_NUMBER: _ClassVar[int]
    FLAW_POSITION_FIELD_NUMBER: _ClassVar[int]
    FLAW_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    is_sound: bool
    lines: int
    position: int
    hash: str
    unchained: int
    flaw_position: int
    flaw_number: int
    reason: str
    next_after: int
    def __init__(self, is_sound: _Optional[bool] = ..., lines: _Optional[int] = ..., position: _Optional[int] = ..., hash: _Optional[str] = ..., unchained: _Optional[int] = ..., flaw_position: _Optional[int] = ..., flaw_number: _Optional[int] = ..., reason: _Optional[str] = ..., next_after: _Optional[int] = ...) -> None: ...
