"""How calls of the seam travel: the arguments and the answer of each method as MessagePack.

Both ends read the shapes off the protocols, so a method that is added there can be called from afar as it is.
A field that only one end knows is left out by the other: programs of two releases understand each other as
long as what is new has a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol, get_type_hints

import msgspec

from forebay.errors import ForebayError, InvalidJob, StoreRefused
from forebay.stores.protocol import Reader, Store

MEDIA_TYPE: Final = "application/msgpack"
PATH: Final = "/v1/store/"
JOBS_AT_ONCE: Final = 1_000  # with all that they carry
_ELSEWHERE: Final = ("close",)  # a handle is let go of where it is


class Hints(Protocol):
    """What is asked of a service beyond the seam."""

    def hint(self, seen: str | None = None) -> str:
        """A word that is another one once something may have come. Who says the last word that it has
        `seen` waits for the next one, for as long as the service lets it."""
        ...


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """An error of ours on its way: its class, its sentence, and what else it says."""

    kind: str
    message: str
    fields: dict[str, Any] = {}
    cause: Wrong | None = None


class Call:
    """One method of the seam. What it takes to read a call is made when there is one."""

    def __init__(self, name: str, method: Callable[..., Any], *, writes: bool) -> None:
        self.name = name
        self.writes = writes
        self._method = method
        self._signature = inspect.signature(method)

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self._method)

    @cached_property
    def _arguments(self) -> msgspec.msgpack.Decoder[Any]:
        names = [name for name in self._signature.parameters if name != "self"]
        fields = [
            (name, self._types[name])
            if (default := self._signature.parameters[name].default) is inspect.Parameter.empty
            else (name, self._types[name], default)
            for name in names
        ]
        shape = msgspec.defstruct(f"{self.name}_call", fields, kw_only=True)
        return msgspec.msgpack.Decoder(shape, dec_hook=_decoded)

    @cached_property
    def _answer(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(self._types["return"], dec_hook=_decoded)

    def asked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bytes:
        """A call as it is sent."""
        given = self._signature.bind(None, *args, **kwargs).arguments
        del given["self"]
        return encoded(given)

    def read(self, body: bytes) -> Any:
        """The arguments of a call as they came; raises InvalidJob, or what else is wrong with one."""
        return _read(self._arguments, body)

    def do(self, handle: object, asked: Any) -> Any:
        """Make the call."""
        arguments = {name: getattr(asked, name) for name in asked.__struct_fields__}
        return getattr(handle, self.name)(**arguments)

    def answer(self, body: bytes) -> Any:
        """The answer as it came."""
        return _read(self._answer, body)


def _read(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        # What a struct of ours has to say about its fields.
        if isinstance(exc.__cause__, ForebayError):
            raise exc.__cause__ from None
        raise InvalidJob(f"this is not what the call takes: {exc}") from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise InvalidJob(f"this is no MessagePack: {exc}") from exc


def encoded(value: object) -> bytes:
    """Anything that travels; raises StoreRefused for what cannot."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as exc:
        raise StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}") from exc
    except (OverflowError, TypeError, RecursionError) as exc:
        raise StoreRefused(f"this cannot be sent to a service: {exc}") from exc


def wrong_from(body: bytes) -> ForebayError:
    """An error as it came."""
    return _error(_read(_wrong, body))


def _encoded(value: Any) -> Any:
    if isinstance(value, ForebayError):
        cause = value.__cause__
        return Wrong(
            kind=type(value).__name__,
            message=str(value),
            fields={name: field for name, field in vars(value).items() if not name.startswith("_")},
            cause=_encoded(cause) if isinstance(cause, ForebayError) else None,
        )
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _decoded(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if kind is not ForebayError:
        raise NotImplementedError(f"{kind} does not travel")
    return _error(msgspec.convert(value, Wrong))


def _error(wrong: Wrong) -> ForebayError:
    # A service of a later release may have errors that are not known here.
    known = _errors().get(wrong.kind, ForebayError)
    error: ForebayError = known.__new__(known, wrong.message)
    error.args = (wrong.message,)
    vars(error).update(wrong.fields)
    error.__cause__ = None if wrong.cause is None else _error(wrong.cause)
    return error


@lru_cache(maxsize=1)
def _errors() -> dict[str, type[ForebayError]]:
    return {kind.__name__: kind for kind in _below(ForebayError)}


def _below(kind: type[ForebayError]) -> Iterator[type[ForebayError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_encoded)
_wrong: Final = msgspec.msgpack.Decoder(Wrong)


@lru_cache(maxsize=1)
def calls() -> dict[str, Call]:
    """All methods that travel, by name."""
    return {
        name: Call(name, method, writes=protocol is Store)
        for protocol in (Store, Reader, Hints)
        for name, method in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_") and name not in _ELSEWHERE
    }
