"""ULIDs: 128 bits as 26 characters that sort like their number."""

from __future__ import annotations

from typing import Final

from forebay.errors import InvalidJob

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH: Final = 26
# Two characters at a time: 13 look-ups instead of 26 (1.2 us instead of 2.3 us an id).
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_LAST_TWENTY_BITS: Final = 2**20 - 1
_PYTHON_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
# To Python's digits of base 32, in both cases. Other characters that int() accepts (signs, blanks,
# underscores, letters that Crockford left out) become one that it refuses.
_DIGITS: Final = str.maketrans(
    _ALPHABET + _ALPHABET.lower() + "ILOUilou_+- \t\n\r\x0b\x0c",
    _PYTHON_DIGITS * 2 + "!" * 17,
)


def encode_ulid(bits: int) -> str:
    """Return the 26 characters of a 128-bit number."""
    p = _PAIRS
    return (
        f"{p[bits >> 120 & 1023]}{p[bits >> 110 & 1023]}{p[bits >> 100 & 1023]}{p[bits >> 90 & 1023]}"
        f"{p[bits >> 80 & 1023]}{p[bits >> 70 & 1023]}{p[bits >> 60 & 1023]}{p[bits >> 50 & 1023]}"
        f"{p[bits >> 40 & 1023]}{p[bits >> 30 & 1023]}{p[bits >> 20 & 1023]}{p[bits >> 10 & 1023]}"
        f"{p[bits & 1023]}"
    )


def encode_ulids(first: int, count: int) -> list[str]:
    """Return the texts of consecutive numbers: 0.2 us each instead of 1.2."""
    texts: list[str] = []
    while count > 0:
        head, low = encode_ulid(first)[:-4], first & _LAST_TWENTY_BITS
        row = range(low, min(low + count, _LAST_TWENTY_BITS + 1))
        texts += [f"{head}{_PAIRS[number >> 10]}{_PAIRS[number & 1023]}" for number in row]
        first, count = first + len(row), count - len(row)
    return texts


def decode_ulid(text: str) -> int:
    """Return the 128 bits of a ULID; raise InvalidJob for other texts."""
    if len(text) != _LENGTH:
        raise InvalidJob(f"{text!r:.60} is not a ULID: it has {len(text)} characters, not 26", field="id")
    try:
        # Straight through int() because every settlement reads an id: 0.5 us instead of 2.5 us.
        bits = int(text.translate(_DIGITS), 32) if text.isascii() else -1
    except ValueError:
        bits = -1
    if bits < 0:
        wrong = next(letter for letter in text if letter.translate(_DIGITS) not in _PYTHON_DIGITS)
        raise InvalidJob(f"{text!r:.60} is not a ULID: {wrong!r} is not in its alphabet", field="id")
    if bits >> 128:
        raise InvalidJob(f"{text!r:.60} is not a ULID: it holds more than 128 bits", field="id")
    return bits


def ulid_created_at(text: str) -> int:
    """Return when a generated id was created, in milliseconds UTC."""
    return decode_ulid(text) >> 80
