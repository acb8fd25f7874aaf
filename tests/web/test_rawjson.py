"""The checks on raw JSON text, against the standard library's decoder (N5, Z17)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen import rawjson
from queen.errors import Invalid

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(codec=None), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(values, st.booleans())
def test_only_lone_surrogates_are_refused(value: Any, spaced: bool) -> None:
    text = json.dumps(value, indent=1 if spaced else None).encode()
    try:
        json.dumps(value, ensure_ascii=False).encode()
        sound = True
    except UnicodeEncodeError:
        # json.dumps pairs nothing: two halves in a row are one character when read again.
        sound = "\\u" not in text.decode() or _paired(text)
    assert rawjson.has_lone_surrogate(text) is not sound


def _paired(text: bytes) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(values)
def test_nesting_is_measured(value: Any) -> None:
    assert rawjson.nesting(json.dumps(value).encode()) == depth(value)


@pytest.mark.parametrize("levels", [0, 1, 23, 24, 25, 100, rawjson.MAX_NESTING])
def test_nesting_up_to_the_limit(levels: int) -> None:
    for text in (b"[" * levels + b"]" * levels, b'{"[":' * levels + b"0" + b"}" * levels):
        assert rawjson.nesting(text) == levels
        rawjson.check(text, "payload")
        wide = b"[" + b",".join([text] * 3) + b"]"
        assert rawjson.nesting(wide) == levels + 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'"\xff"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b'"\xc0\x80"', "UTF-8"),
        (b'"\\uD800"', "surrogate"),
        (b'"\\\\\\uDFFF"', "surrogate"),
        (b"[" * 257 + b"]" * 257, "nests"),
        (b"[" + b"[]," * 300 + b"[" * 257 + b"]" * 258, "nests"),
    ],
)
def test_a_refusal_names_its_place(text: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        rawjson.check(text, "items[3].payload")
    assert caught.value.where == "items[3].payload"


@pytest.mark.parametrize(
    "text",
    [b'"\\\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"]]]]{{{{"', b'"\\"[[[["', b"[" + b"{}," * 999 + b"1]"],
)
def test_what_only_looks_wrong_passes(text: bytes) -> None:
    rawjson.check(text, "payload")
