"""The edge's tables are complete and agree with what they describe."""

import ast
from pathlib import Path

import pytest

import queen.errors
from queen.errors import Busy, Invalid, QueenError, QueueFull
from queen.settings import SETTINGS, Settings
from queen.web.exchange import refused
from queen.web.status import STATUS, row_of
from queen.web.text import decoded, parameters


def test_every_error_has_a_row() -> None:
    """W4: a new error must say what status it has."""
    errors = {kind for kind in vars(queen.errors).values() if isinstance(kind, type) and issubclass(kind, QueenError)}
    assert errors == set(STATUS)


def test_a_busy_error_says_itself_when_to_come_back() -> None:
    assert row_of(QueueFull("full")) == (429, 1)
    assert row_of(Busy("busy", retry_after=7)) == (503, 7)
    assert dict(refused(Busy("busy", 7)).headers)[b"retry-after"] == b"7"


def test_a_refusal_survives_its_own_text() -> None:
    """A name with a lone surrogate is quoted in the error that refuses it."""
    assert b"\\\\ud800" in refused(Invalid("queue", "'\ud800' is no name")).body


def test_every_setting_has_a_row() -> None:
    assert tuple(setting.name for setting in SETTINGS) == Settings.__struct_fields__
    assert len({setting.flag for setting in SETTINGS}) == len(SETTINGS)
    for setting in SETTINGS:
        assert setting.meaning
        assert setting.kind == "text" or setting.kind == "boolean" or setting.low <= setting.default <= setting.high


def test_the_edge_uses_what_embedders_use() -> None:
    """House law 1: web imports neither store nor actors."""
    folder = Path(queen.errors.__file__).parent / "web"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(("queen.store", "queen.actors"))], path


@pytest.mark.parametrize(
    ("raw", "text"), [("a", "a"), ("%2F", "/"), ("%252F", "%2F"), ("a+b", "a+b"), ("%F0%9F%98%80", "\U0001f600")]
)
def test_a_segment_is_decoded_once(raw: str, text: str) -> None:
    """N1."""
    assert decoded(raw, "queue") == text


@pytest.mark.parametrize("raw", ["%", "%4", "%zz", "%ff", "%c3", "%ed%a0%80", "%u0041"])
def test_a_broken_segment_is_refused(raw: str) -> None:
    """N1."""
    with pytest.raises(Invalid, match=r"^queue: "):
        decoded(raw, "queue")


def test_a_query_is_read_as_forms_are() -> None:
    query = b"a=1&b=x+y&c=%2B&&d&=e&e=%26%3D&f==="
    assert parameters(query) == {"a": "1", "b": "x y", "c": "+", "d": "", "e": "&=", "f": "=="}
    assert parameters(b"") == {}
    with pytest.raises(Invalid, match=r"^a: is given more than once"):
        parameters(b"a=1&%61=2")
