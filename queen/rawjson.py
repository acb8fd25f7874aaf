"""JSON text that is kept as it was sent (N5): the checks that a syntax check leaves out. Pure, parses no values.

`msgspec.Raw` checks the grammar, but neither UTF-8 nor lone surrogates nor depth; whoever stores such text asks here.
"""

import re
from itertools import accumulate
from typing import Final

from queen.errors import Invalid

MAX_NESTING: Final = 256
"""Levels of arrays and objects in one payload (Z17 asks for 200). Far below the interpreter's own limit of about
1000, where decoders give up, so that whatever was stored can be read by everybody."""

# Whatever this takes away is a sound escape; a backslash that is left over opened no sound one.
_SOUND_ESCAPE = re.compile(
    rb"\\(?:[^u]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})",
    re.DOTALL,
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# An opening bracket leads one level down (+1), a closing one back up (-1, as a signed byte).
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check(text: bytes, where: str) -> None:
    """Refuse what the JSON grammar alone lets pass in `text`: bad UTF-8, lone surrogates, nesting past the limit.

    `text` has passed a syntax check. Raises `Invalid` naming `where`.
    """
    check_utf8(text, where)
    check_escapes(text, where)
    check_nesting(text, where)


def check_utf8(text: bytes, where: str) -> None:
    """Raise `Invalid` unless `text` is UTF-8 (encoded surrogates are not)."""
    try:
        text.decode()
    except UnicodeDecodeError as fault:
        raise Invalid(where, f"is not valid UTF-8 at byte {fault.start}") from None


def has_lone_surrogate(text: bytes) -> bool:
    """Whether a `\\uD800`…`\\uDFFF` escape in `text` has no partner."""
    return b"\\u" in text and b"\\" in _SOUND_ESCAPE.sub(b"", text)


def check_escapes(text: bytes, where: str) -> None:
    """Raise `Invalid` if an escape in `text` is an unpaired surrogate."""
    if has_lone_surrogate(text):
        raise Invalid(where, "holds an unpaired surrogate escape")


def check_nesting(text: bytes, where: str) -> None:
    """Raise `Invalid` if arrays and objects nest deeper than `MAX_NESTING` in `text`."""
    # Text with that few opening brackets can't nest too deep, wherever they stand.
    if text.count(b"[") + text.count(b"{") > MAX_NESTING and nesting(text) > MAX_NESTING:
        raise Invalid(where, f"nests deeper than {MAX_NESTING} levels")


def nesting(text: bytes) -> int:
    """The depth of arrays and objects in sound JSON `text`; a scalar has 0."""
    steps = _STRING.sub(b"", text).translate(_STEPS, _NO_BRACKETS)
    # Summed up in C: 0.2 s for the worst 10 MiB there can be, where a loop of ours would take seconds.
    return max(accumulate(memoryview(steps).cast("b")), default=0)
