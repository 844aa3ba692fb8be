"""Remote calls of the store contract: arguments and result of each method as MessagePack.

Both ends read the types from the protocols, so a method that is added there can be called remotely as it is.
A field that only one end knows is left out by the other: programs of two releases work together as long as
new fields have a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol, get_type_hints

import msgspec

from forebay.errors import ForebayError, InvalidJob, StoreRefused
from forebay.prepared_types import prepare_type
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

MEDIA_TYPE: Final = "application/msgpack"
PATH: Final = "/v1/store/"
MAX_JOBS: Final = 1_000  # with payloads and results
_NOT_REMOTE: Final = ("close",)  # a handle is closed where it is


class WakeupPolling(Protocol):
    """Calls of a service beyond the store contract."""

    def poll_wakeups(self, version: str | None = None) -> str:
        """Return a version that differs from the last one once there may be new work. A caller that passes
        its last `version` waits for the next one, for as long as the service allows."""
        ...


class WireError(msgspec.Struct, frozen=True, kw_only=True):
    """Encoded error of ours: its class, its message, its fields."""

    kind: str
    message: str
    fields: dict[str, Any] = {}
    cause: WireError | None = None


class StoreMethod:
    """One method of the store contract. Its decoders are built with its first call."""

    def __init__(self, name: str, method: Callable[..., Any], *, writes: bool) -> None:
        self.name = name
        self.writes = writes
        self._method = method
        self._signature = inspect.signature(method)

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self._method)

    @cached_property
    def _arguments_decoder(self) -> msgspec.msgpack.Decoder[Any]:
        names = [name for name in self._signature.parameters if name != "self"]
        fields = [
            (name, self._types[name])
            if (default := self._signature.parameters[name].default) is inspect.Parameter.empty
            else (name, self._types[name], default)
            for name in names
        ]
        shape = msgspec.defstruct(f"{self.name}_call", fields, kw_only=True)
        return msgspec.msgpack.Decoder(prepare_type(shape), dec_hook=_decode_custom)

    @cached_property
    def _response_decoder(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(prepare_type(self._types["return"]), dec_hook=_decode_custom)

    def encode_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bytes:
        """Encode the arguments of a call."""
        arguments = self._signature.bind(None, *args, **kwargs).arguments
        del arguments["self"]
        return encode(arguments)

    def decode_arguments(self, body: bytes) -> Any:
        """Decode the arguments of a call. Raises InvalidJob, or the error of a struct about its fields."""
        return _decode(self._arguments_decoder, body)

    def execute(self, handle: object, request: Any) -> Any:
        """Make the call."""
        arguments = {name: getattr(request, name) for name in request.__struct_fields__}
        return getattr(handle, self.name)(**arguments)

    def decode_response(self, body: bytes) -> Any:
        """Decode the result of a call."""
        return _decode(self._response_decoder, body)


def _decode(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        # The error of a struct of ours about its fields.
        if isinstance(exc.__cause__, ForebayError):
            raise exc.__cause__ from None
        raise InvalidJob(f"this is not what the call takes: {exc}") from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise InvalidJob(f"this is no MessagePack: {exc}") from exc


def encode(value: object) -> bytes:
    """Encode a value. Raises StoreRefused for one that cannot be encoded."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as exc:
        raise StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}") from exc
    except (OverflowError, TypeError, RecursionError) as exc:
        raise StoreRefused(f"this cannot be sent to a service: {exc}") from exc


def decode_error(body: bytes) -> ForebayError:
    """Decode an error."""
    return _build_error(_decode(_error_decoder, body))


def _encode_custom(value: Any) -> Any:
    if isinstance(value, ForebayError):
        cause = value.__cause__
        return WireError(
            kind=type(value).__name__,
            message=str(value),
            fields={name: field for name, field in vars(value).items() if not name.startswith("_")},
            cause=_encode_custom(cause) if isinstance(cause, ForebayError) else None,
        )
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _decode_custom(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if kind is not ForebayError:
        raise NotImplementedError(f"{kind} does not travel")
    return _build_error(msgspec.convert(value, prepare_type(WireError)))


def _build_error(encoded: WireError) -> ForebayError:
    # A service of a later release may have errors that are not known here.
    known = _error_classes().get(encoded.kind, ForebayError)
    error: ForebayError = known.__new__(known, encoded.message)
    error.args = (encoded.message,)
    vars(error).update(encoded.fields)
    error.__cause__ = None if encoded.cause is None else _build_error(encoded.cause)
    return error


@lru_cache(maxsize=1)
def _error_classes() -> dict[str, type[ForebayError]]:
    return {kind.__name__: kind for kind in _iter_subclasses(ForebayError)}


def _iter_subclasses(kind: type[ForebayError]) -> Iterator[type[ForebayError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _iter_subclasses(subclass)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_encode_custom)
_error_decoder: Final = msgspec.msgpack.Decoder(WireError)


@lru_cache(maxsize=1)
def store_methods() -> dict[str, StoreMethod]:
    """Return all methods that can be called remotely, by name."""
    return {
        name: StoreMethod(name, method, writes=protocol is Store)
        for protocol in (Store, Reader, WakeupPolling)
        for name, method in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_") and name not in _NOT_REMOTE
    }
