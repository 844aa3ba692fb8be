"""Cost of hashing the values in a pickle, computed without creating one of them.

The hash of a tuple is computed again each time that it is used, from the hashes of its items. A pickle can
put one tuple twice into the next one at five bytes a level, so a hundred bytes are enough for hours. Its
opcodes are followed here with sizes in place of values.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from forebay.integrations.importers.source import UnreadableMessage

# They change the first of their operands, and put it back.
_MUTATING_OPS: Final = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"})
# They hash some of their operands, or call a class that may.
_HASHED_OPERANDS: Final[Mapping[str, slice]] = {
    "SETITEM": slice(1, 2),
    "SETITEMS": slice(1, None, 2),
    "DICT": slice(0, None, 2),
    "ADDITEMS": slice(1, None),
    **dict.fromkeys(("FROZENSET", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"), slice(None)),
}
_PUT_OPS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GET_OPS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_WORD_BITS: Final = 64


class _Size:
    """Number of values in a value, shared ones as often as they are reached."""

    __slots__ = ("values",)

    def __init__(self, values: int) -> None:
        self.values = values


class PickleCostCheck:
    """The stack machine of pickles, with sizes in place of values. `max_values` bounds the number of values
    that are hashed."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._room = max_values
        self._stack: list[_Size] = []
        self._below: list[list[_Size]] = []  # the stack below each mark
        self._memo: dict[int, _Size] = {}

    def check(self, data: bytes) -> None:
        """Raise UnreadableMessage if hashing would take too long; a broken pickle may raise anything."""
        arg: Any
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name == "MARK":
                self._below.append(self._stack)
                self._stack = []
            elif opcode.name in _PUT_OPS:
                self._memo[len(self._memo) if arg is None else arg] = self._stack[-1]
            elif opcode.name in _GET_OPS:
                self._stack.append(self._memo[arg])
            elif opcode.name == "DUP":
                self._stack.append(self._stack[-1])
            else:
                self._apply_opcode(opcode, arg)

    def _apply_opcode(self, opcode: pickletools.OpcodeInfo, arg: Any) -> None:
        operands = self._take_operands(opcode)
        if opcode.name in _HASHED_OPERANDS:
            self._room -= _sum(operands[_HASHED_OPERANDS[opcode.name]])
        if self._room < 0:
            raise UnreadableMessage(
                "its pickle takes too long to read: what it shares is hashed again and again"
            )
        if opcode.stack_after:
            result = operands[0] if opcode.name in _MUTATING_OPS else _Size(0)
            result.values = min(1 + _sum(operands) + _int_words(arg), self._max_values + 1)
            self._stack.append(result)

    def _take_operands(self, opcode: pickletools.OpcodeInfo) -> list[_Size]:
        """Return the operands of an opcode, removed from the stack."""
        before = opcode.stack_before
        if pickletools.markobject not in before and (self._stack or opcode.name != "POP"):
            return self._pop(len(before))
        above, self._stack = self._stack, self._below.pop()
        return [*self._pop(before.index(pickletools.markobject)), *above] if opcode.name != "POP" else above

    def _pop(self, count: int) -> list[_Size]:
        if count == 0:
            return []
        operands = self._stack[-count:]
        del self._stack[-count:]
        return operands


def _sum(sizes: Iterable[_Size]) -> int:
    return sum(size.values for size in sizes)


def _int_words(arg: object) -> int:
    """Return the number of words of a long number, which is hashed each time as well; texts and bytes keep
    their hash."""
    return arg.bit_length() // _WORD_BITS if isinstance(arg, int) else 0
