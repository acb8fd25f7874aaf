"""Reads the API page (`docs/api-0.1.0.md`), the reference that the project is measured against: its endpoints with the
answers they document, and its WebSocket events. Knows the page's habits (comments, `...`), not the server."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = (Path(__file__).parents[2] / "docs" / "api-0.1.0.md").read_text()

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[\[{]\s*\.\.\.\s*[\]}]', re.DOTALL)
_ENDPOINT = re.compile(r"^\*\*Endpoint:\*\* `([A-Z]+) ([^`]+)`$", re.MULTILINE)
_LIKE = "\x00like"


class Endpoint(NamedTuple):
    """One endpoint: its section's number, and its example answer, None where the page has words for it alone."""

    section: str
    method: str
    path: str
    answer: Any


def read(text: str) -> list[Any]:
    """The JSON values of a block, without its comments. `{...}`, `[...]` and objects that hold only a comment read as
    `Like`: as in an example before it."""
    plain = _TOKENS.sub(_plain, text).strip()
    values = []
    decoder = json.JSONDecoder()
    while plain:
        value, end = decoder.raw_decode(plain)
        values.append(value)
        plain = plain[end:].lstrip()
    return values


def _plain(token: re.Match[str]) -> str:
    text = token[0]
    if text.startswith(("//", "/*")):
        return ""
    return text if text.startswith('"') else json.dumps(_LIKE + text[0])


def is_like(value: Any) -> bool:
    """Whether the page has an ellipsis here."""
    return value == {} or (isinstance(value, str) and value.startswith(_LIKE))


def endpoints() -> list[Endpoint]:
    """All endpoints of the page, in its order; what it leaves out with `...` is filled in from what stands before."""
    known: dict[str, Any] = {}
    found = []
    for number, section in sections(PAGE):
        endpoint = _ENDPOINT.search(section)
        if endpoint is None or not endpoint[2].startswith("/"):
            continue
        request, mark, response = section.partition("**Response:**")
        answer = None
        for block in blocks(request):
            learn(block, known)
        if mark and (answers := blocks(response)):
            answer = filled(answers[0], known)
            learn(answer, known)
        found.append(Endpoint(number, endpoint[1], endpoint[2], answer))
    return found


def events() -> dict[str, Any]:
    """The WebSocket's events by their names."""
    text = PAGE.split("#### Events (Server → Client)")[1].split("#### Client → Server Messages")[0]
    return {event["event"]: event for block in blocks(text) for event in [block] if "event" in event}


def error() -> Any:
    """The form of every error."""
    return blocks(PAGE.split("## Error Responses")[1])[0]


def sections(page: str) -> Iterator[tuple[str, str]]:
    """The numbered sections that hold no others."""
    parts = re.split(r"^#{3,4} (\d(?:\.\d)?)\.? .*$", page, flags=re.MULTILINE)
    return zip(parts[1::2], parts[2::2], strict=True)


def blocks(text: str) -> list[Any]:
    """All values of all JSON blocks."""
    return [value for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL) for value in read(block)]


def learn(example: Any, known: dict[str, Any]) -> None:
    """Keep what stands under each name, for the ellipses to come."""
    if isinstance(example, dict):
        for name, value in example.items():
            if isinstance(value, dict | list) and not is_like(value):
                known[name] = value
            learn(value, known)
    elif isinstance(example, list):
        for each in example:
            learn(each, known)


def filled(example: Any, known: dict[str, Any]) -> Any:
    """The example with its ellipses resolved."""
    if isinstance(example, dict):
        return {name: known[name] if is_like(value) else filled(value, known) for name, value in example.items()}
    if isinstance(example, list):
        return [filled(each, known) for each in example]
    return example


# -- comparing --------------------------------------------------------------------------------------------

FORMS = (
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
    re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    re.compile(r"\d+s"),
    re.compile(r"\d+\.\d\d"),
    re.compile(r"\d+\.\ds|\d+m \d+s|\d+h \d+m|\d+d \d+h"),
)
"""A text of one of these forms is answered with one of the same: instants, ids, seconds, rates, durations (S4)."""


def faults(example: Any, answer: Any, where: str = "$") -> list[str]:
    """Where the answer lacks a field of the example, or has another type there. More fields may come: those are
    the OpenAPI document's subject, which every answer is held against as well. Where the example has null, the page
    tells no type: there may be text as well."""
    if isinstance(example, dict):
        if not isinstance(answer, dict):
            return [f"{where}: {answer!r} is no object"]
        missing = [f"{where}.{name} is missing" for name in example if name not in answer]
        return missing + [
            fault
            for name in example
            if name in answer
            for fault in faults(example[name], answer[name], f"{where}.{name}")
        ]
    if isinstance(example, list):
        return _list_faults(example, answer, where)
    if example is None:
        return [] if answer is None or isinstance(answer, str) else [f"{where}: {answer!r} is neither null nor text"]
    if type(example) is not type(answer):
        return [f"{where}: {answer!r} is not of the type of {example!r}"]
    if isinstance(example, str):
        form = FORMS[1] if example in ("uuid", "uuid-here") or example.endswith("-uuid") else None
        form = form or next((form for form in FORMS if form.fullmatch(example)), None)
        if form is not None and not form.fullmatch(answer):
            return [f"{where}: {answer!r} has not the form of {example!r}"]
    return []


def _list_faults(example: list[Any], answer: Any, where: str) -> list[str]:
    """Every element is like one of the example's, and none of those is without its like."""
    if not isinstance(answer, list):
        return [f"{where}: {answer!r} is no list"]
    if not answer:
        return [f"{where}: is empty"]
    found = []
    for index, each in enumerate(answer):
        found += _fewest(faults(one, each, f"{where}[{index}]") for one in example)
    for one in example:
        found += _fewest(faults(one, each, f"{where}[{index}]") for index, each in enumerate(answer))
    return found


def _fewest(candidates: Iterable[list[str]]) -> list[str]:
    return min(candidates, key=len, default=[])
