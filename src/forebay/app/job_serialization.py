"""Jobs as plain dictionaries and as JSON, and back without loss: for logs, files and other programs.

Bytes become base64 strings, enum members become strings, times stay milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from forebay.domain.job import Job, NewJob
from forebay.domain.job_validation import check_metadata
from forebay.errors import InvalidJob
from forebay.prepared_types import prepare_type

J = TypeVar("J", Job, NewJob)

# Any JSON is allowed there, and msgspec cannot convert a recursive type.
_ANY_JSON_FIELD: Final = "metadata"


def job_to_dict(job: Job | NewJob) -> dict[str, Any]:
    """Return all fields of a job as values that JSON can hold."""
    fields: dict[str, Any] = msgspec.to_builtins(job)
    return fields


def job_to_json(job: Job | NewJob) -> bytes:
    """Return all fields of a job as one JSON object."""
    return msgspec.json.encode(job)


def job_from_dict(kind: type[J], fields: Mapping[str, Any]) -> J:
    """Return the job that `job_to_dict` has converted; raise InvalidJob for missing, unknown or wrong
    fields."""
    hints = _hints(kind)
    for name in fields:
        if name not in hints:
            raise InvalidJob(f"a {kind.__name__} has no field {name!r:.60}", field=str(name))
    try:
        return kind(**{name: _value(name, hints[name], value) for name, value in fields.items()})
    except TypeError as exc:  # a required field is missing
        raise InvalidJob(f"a {kind.__name__} cannot be made of this: {exc}") from exc


def job_from_json(kind: type[J], data: bytes | str) -> J:
    """Return the job that `job_to_json` has encoded; raise InvalidJob like `job_from_dict`."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidJob(f"this is not a job as JSON: {exc!s:.120}") from exc
    return job_from_dict(kind, fields)


def _value(name: str, hint: Any, value: Any) -> Any:
    if name == _ANY_JSON_FIELD:
        check_metadata(value)
        return value
    try:
        return msgspec.convert(value, prepare_type(hint))
    except msgspec.ValidationError as exc:
        raise InvalidJob(f"{name}: {exc}", field=name) from exc


@cache
def _hints(kind: type[Job] | type[NewJob]) -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kind.__struct_fields__}
