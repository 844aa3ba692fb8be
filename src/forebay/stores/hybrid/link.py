"""A connection to a server that may be lost at any time, and for which nobody waits longer than a moment."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic
from typing import Any, Final

import msgspec
import redis

from forebay.errors import StoreError
from forebay.stores.hybrid.keys import channel
from forebay.stores.hybrid.scripts import load_scripts
from forebay.stores.redis.breaker import Breaker, Sight
from forebay.stores.redis.connection import REDIRECTIONS, Address, opened

# Without an answer for so long a server counts as away. It gives hints, and a store that is asked without
# them needs less.
ANSWER_SECONDS: Final = 0.25
PAUSE_SECONDS: Final = 0.2
# After a server has refused: out of memory, without rights, a replica. That does not pass in a moment, and
# the next try is put off for twice as long as the last, unless it was there for a good while in between.
REFUSED_SECONDS: Final = 5.0
LONGEST_REFUSED_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)
Then = Callable[[Any], None]
Words = tuple[bytes | str | int, ...]


class Link:
    """Sends without waiting for answers, and asks with a short patience.

    What is sent is answered in its order, so answers are read when they have come, before the next words. If
    one takes too long the link is down: nothing is sent any more, and a thread of its own looks for the
    server again, so that no caller waits for one that is away. One that refuses is away too, until it does
    all that is asked of it. Used by one thread, like the handle it belongs to.
    """

    def __init__(self, address: Address, prefix: str, sight: Sight) -> None:
        self._address = address
        self._prefix = prefix
        self._channel = channel(prefix)
        self._sight = sight
        self._breaker = Breaker(sight)
        self._scripts = load_scripts()
        self._raw: Any = None
        self._url: str | None = None
        self._trial = f" {os.urandom(6).hex()}"
        self._waiting: deque[tuple[float, Then | None]] = deque()
        self._found: Any = None  # by the thread that looks for the server
        self._seeker: Thread | None = None
        self._seek_at = 0.0
        self._put_off = 0.0  # how long after the last refusal it is tried again
        self._is_back_at = 0.0
        self._pid = os.getpid()
        self._used_at = 0.0
        self._is_closed = False
        self.returns: int = 0  # how often it has come back
        self.why: str = ""  # it is down

    def open(self) -> None:
        """Try once, and wait for it: most handles are opened while the server is there. Not where somebody in
        this program has waited in vain just before."""
        if self._sight.is_away:
            self.why = "it did not answer to others either"
            self._look_for_it()
        else:
            self._seek()
            self._take_found()

    @property
    def is_up(self) -> bool:
        """Whether anything can be sent now, as far as anybody knows."""
        if self._pid != os.getpid():
            self._forget_parent()
        if self._raw is None:
            self._look_for_it()
        else:
            self._hear()
        return self._raw is not None

    def send(self, name: str, *arguments: bytes | str | int, then: Then | None = None) -> bool:
        """Call a script and go on; `then` gets the answer at some later call. Whether it was sent."""
        return self.is_up and self._sent(self._words(name, arguments), then)

    def publish(self) -> bool:
        """Tell those who listen; whether it was sent."""
        return self.is_up and self._sent((b"PUBLISH", self._channel, b""), None)

    def ask(self, name: str, *arguments: bytes | str | int) -> Any:
        """Call a script and wait for its answer; None if there is none in time."""
        return self._asked(*self._words(name, arguments))

    def command(self, *words: bytes | str | int) -> Any:
        """One command and its answer; None if there is none in time."""
        return self._asked(*words)

    def is_of_use(self) -> bool:
        """Whether it does now what is needed of it. One that is full, or a replica, answers PING."""
        *before, (name, arguments) = self._trials()
        for one, its in before:
            self.send(one, *its)
        return self.ask(name, *arguments) is not None

    @property
    def channel(self) -> str:
        return self._channel

    def key(self, name: str, queue: str) -> str:
        return f"{self._prefix}:{name}:{queue}"

    def close(self) -> None:
        self._is_closed = True
        held = self._raw, self._found
        self._raw = self._found = None
        self._waiting.clear()
        for raw in held:
            if raw is not None:
                _let_go(raw)

    def _words(self, name: str, arguments: Words) -> Words:
        return (b"EVALSHA", self._scripts[name].digest, b"1", self._prefix, *arguments)

    def _asked(self, *words: bytes | str | int) -> Any:
        answers: list[Any] = []
        if not (self.is_up and self._sent(words, answers.append)):
            return None
        until = monotonic() + ANSWER_SECONDS
        while self._waiting and self._raw is not None:
            self._read()
            if self._waiting and monotonic() > until:
                self._miss("it is slow")
        return answers[0] if answers else None

    def _sent(self, words: Words, then: Then | None) -> bool:
        if self._raw is None:
            return False  # lost by what was sent just before
        try:
            self._raw.send_command(*words)
        except (redis.RedisError, OSError) as exc:
            self._lose(str(exc))
            return False
        except BaseException:
            self._lose("a call was interrupted")  # nobody knows which answer belongs to what any more
            raise
        self._used_at = monotonic()
        self._waiting.append((self._used_at, then))
        return True

    def _hear(self) -> None:
        """Read the answers that are there. Of a server that is stopped nothing comes, and what is sent there
        only fills the buffers on the way."""
        try:
            while self._waiting and self._raw is not None and self._raw.can_read(0):
                self._read()
            # A refusal among the answers may have ended the link.
            if self._raw is not None and self._is_idle and self._raw.can_read(0):
                self._lose("it has closed the connection")
        except (redis.RedisError, OSError) as exc:
            self._lose(str(exc))
        if self._waiting and monotonic() - self._waiting[0][0] > ANSWER_SECONDS:
            self._miss("it does not answer")

    @property
    def _is_idle(self) -> bool:
        return not self._waiting and monotonic() - self._used_at > IDLE_SECONDS

    def _read(self) -> None:
        """The next answer."""
        try:
            answer = self._raw.read_response()
        except redis.exceptions.ResponseError as exc:
            self._waiting.popleft()
            self._refused(exc)
        except redis.exceptions.TimeoutError as exc:
            self._miss(str(exc))
        except (redis.RedisError, OSError) as exc:
            self._lose(str(exc))
        except BaseException:
            self._lose("a call was interrupted")
            raise
        else:
            _, then = self._waiting.popleft()
            if then is not None:
                then(answer)

    def _refused(self, exc: redis.exceptions.ResponseError) -> None:
        """What was said is lost, like a hint on any other way. A script that is not there is loaded again: a
        server may be told to forget them all."""
        if isinstance(exc, redis.exceptions.NoScriptError):
            for script in self._scripts.values():
                self._sent(("SCRIPT", "LOAD", script.text), None)
        elif isinstance(exc, redis.exceptions.AskError):
            self._url = self._address.url_of(f"{exc.host}:{exc.port}")
            self._lose("its keys have moved to another node")
        else:
            self._lose(str(exc))
            self._seek_at = monotonic() + self._next_put_off()

    def _miss(self, why: str) -> None:
        self._sight.is_missed()
        self._lose(why)

    def _lose(self, why: str) -> None:
        raw, self._raw = self._raw, None
        self._waiting.clear()
        now = monotonic()
        if raw is not None and now - self._is_back_at > LONGEST_REFUSED_SECONDS:
            self._put_off = 0.0
        self._seek_at = now + PAUSE_SECONDS
        self.why = why
        if raw is not None:
            _let_go(raw)

    def _forget_parent(self) -> None:
        """After a fork: connection and thread are the parent's."""
        self._pid, self._raw, self._found, self._seeker = os.getpid(), None, None, None
        self._waiting.clear()
        self._seek_at = 0.0

    def _look_for_it(self) -> None:
        if self._take_found() or self._is_closed:
            return
        is_seeking = self._seeker is not None and self._seeker.is_alive()
        if not is_seeking and monotonic() >= self._seek_at:
            # Before it begins: it may take long, and the next one waits for it and a pause.
            self._seek_at = monotonic() + PAUSE_SECONDS
            self._seeker = Thread(target=self._seek, name="forebay-seek", daemon=True)
            self._seeker.start()

    def _take_found(self) -> bool:
        found, self._found = self._found, None
        if found is None:
            return False
        self._raw = found
        self._is_back_at = monotonic()
        self.returns += 1
        return True

    def _seek(self) -> None:
        try:
            with self._breaker.attempt():
                raw = self._connected()
        except (redis.RedisError, StoreError, OSError) as exc:
            self.why = str(exc)
            self._seek_later(exc)
            return
        if self._is_closed:
            _let_go(raw)
        else:
            self._found = raw

    def _seek_later(self, exc: Exception) -> None:
        refusals = redis.exceptions.ResponseError, redis.exceptions.AuthenticationError
        self._seek_at = monotonic() + (self._next_put_off() if isinstance(exc, refusals) else PAUSE_SECONDS)

    def _next_put_off(self) -> float:
        self._put_off = min(max(2 * self._put_off, REFUSED_SECONDS), LONGEST_REFUSED_SECONDS)
        return self._put_off

    def _connected(self) -> Any:
        """A connection to the node that has our keys, which knows our scripts, and does what they ask for."""
        for _ in range(REDIRECTIONS):
            raw = opened(self._address, self._url, ANSWER_SECONDS)
            try:
                loads: list[Words] = [("SCRIPT", "LOAD", script.text) for script in self._scripts.values()]
                sent = loads + [self._words(name, arguments) for name, arguments in self._trials()]
                for words in sent:
                    raw.send_command(*words)
                for _ in sent:
                    raw.read_response()
            except redis.exceptions.AskError as moved:
                _let_go(raw)
                self._url = self._address.url_of(f"{moved.host}:{moved.port}")
            except BaseException:
                _let_go(raw)
                raise
            else:
                return raw
        raise redis.exceptions.ConnectionError("the nodes of the cluster send us round in a circle")

    def _trials(self) -> Iterator[tuple[str, Words]]:
        """All that our scripts ask of a server, in an order of nobody's jobs, of which nothing is left. A
        user may lack a single right, and one that is full or a replica does all but write."""
        queue, claim, ms = self._trial, "trial", 1_000
        places, more, other = (msgspec.msgpack.encode([(0, seqs)]) for seqs in ((2, 3), (1,), (9,)))
        yield "fill", (queue, 1, "-", "+", places, ms)
        yield "add", (queue, 1, more, f"{self._channel}:trial", claim)
        yield "take", (queue, 1, 1, claim, ms)
        yield "left", (queue, claim, other)
        yield "forget", (queue, 1)


def _let_go(raw: Any) -> None:
    try:
        raw.disconnect()
    except (redis.RedisError, OSError) as exc:
        logger.debug("a connection to Redis was not closed in order: %s", exc)
