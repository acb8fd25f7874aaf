"""The laws of the house, held by reading the source: who imports whom, what pure files may know, how long things get.

Each law is a function from (path, source) to faults, so that it can be shown a planted fault as well as the real tree.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from queen.options import DEFAULTS, OPTIONS, as_dict
from queen.settings import SETTINGS

ROOT = Path(__file__).parents[1]
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("queen/**/*.py"))}

VOCABULARY = {
    *("names", "options", "commands", "events", "replies", "messages", "errors", "history", "figures", "rawjson"),
    *("notices", "meter"),
}
# Who may import which rooms of ours beside the vocabulary. The last three stand above all.
ROOMS: dict[str, set[str]] = {
    "vocabulary": set(),
    "checks": set(),
    "reply": set(),
    "clock": set(),
    "settings": set(),
    "logs": {"settings"},
    "private": set(),
    "tokens": {"private"},
    "token_commands": {"clock", "settings", "tokens"},
    "store": {"store", "clock", "private"},
    "actors": {"actors", "store", "clock", "reply"},
    "audit": {"audit", "actors", "store", "clock"},
    "renewals": set(),
    "leased": {"renewals", "consumer"},  # the consumer for its type alone
    "consumer": {"checks", "leased", "renewals", "broker"},  # the broker for its type alone
    "hindsight": {"audit", "actors"},
    "explanations": {"actors", "checks"},
    "reports": {"audit", "actors", "hindsight"},
    "stored": {"audit", "actors", "checks", "hindsight"},
    "groups": {"actors", "checks"},
    "condition": {"actors"},
    "broker": {
        *("actors", "checks", "clock", "condition", "consumer", "explanations", "groups"),
        *("hindsight", "renewals", "reply", "reports", "stored", "succession"),
    },
    "succession": {"actors", "condition"},
    "opening": {"broker", "actors", "store", "clock"},
    "web": {"web", "broker", "checks", "reply", "settings", "tokens"},
    "__init__": {"broker", "clock", "condition", "consumer", "leased", "opening", "reply", "store"},
    "__main__": {"cli"},
    "backup": {"audit", "store"},
    "resend": {"audit"},
    "cli": {
        *("cli_audit", "cli_backup", "cli_keys", "cli_resend", "cli_whatif", "token_commands"),
        *("broker", "logs", "opening", "settings", "store", "web"),
    },
    "cli_audit": {"audit", "cli_keys", "cli_state", "cli_tables", "opening", "settings", "store"},
    "cli_backup": {"audit", "backup", "cli_audit", "cli_tables", "store"},
    "cli_resend": {"audit", "cli_audit", "cli_keys", "cli_tables", "resend", "settings"},
    "cli_whatif": {"audit", "cli_audit", "cli_tables"},
    "cli_keys": {"settings", "store"},
    "cli_tables": {"audit"},
    "cli_state": {"audit", "cli_tables", "web"},
}
PURE = re.compile(r"(.*_rules|.*_state|format|chain|waiting|journal)\.py")
# What the audit may know of the actors: their states, rules and figures, and nothing that runs.
AUDITED = re.compile(
    r"actors(\.(\w+_state|\w+_rules|decision|availability|snapshots|ranges|statistics|sketch|tally)(\.\w+)?)?"
)
IMPURE = {"trio", "time", "random", "uuid", "logging", "os", "structlog", "lmdb"}
# Foreign modules that only these files may import.
KEPT = {
    "time": {"queen/clock.py"},
    "random": {"queen/clock.py"},
    "uuid": {"queen/clock.py"},
    "lmdb": {
        "queen/store/lmdb_journal.py",
        "queen/store/lmdb_file.py",
        "queen/store/lmdb_rows.py",
        "queen/store/lmdb_compact.py",
    },
    "cryptography": {"queen/store/keyring.py"},
    "cbor2": {"queen/store/format.py", "queen/store/snapshots.py"},
}
FUNCTION_LINES, FILE_LINES = 70, 400
# A ratchet: what crosses a limit stands here with its size and its reason, and may only shrink.
LONG: dict[str, int] = {}


def imports(source: str) -> Iterator[str]:
    """Every module that the source imports; `from a import b` counts as `a` and as `a.b`, which may be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "relative imports hide who imports whom"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path: str) -> str:
    name = path.split("/")[1].removesuffix(".py")
    return "vocabulary" if name in VOCABULARY else name


def import_faults(path: str, source: str) -> Iterator[str]:
    allowed = ROOMS[room(path)]  # a new module at the top needs its place among the rooms
    for module in imports(source):
        top, _, rest = module.partition(".")
        inner = rest.split(".")[0]
        if top in KEPT and path not in KEPT[top]:
            yield f"{path} imports {module}, which only {', '.join(sorted(KEPT[top]))} may"
        if PURE.fullmatch(Path(path).name) and top in IMPURE:
            yield f"{path} is pure and imports {module}"
        if room(path) == "audit" and (top == "trio" or (inner == "actors" and not AUDITED.fullmatch(rest))):
            yield f"{path} imports {module}: the audit reads, and knows no task"
        if top == "queen" and inner and inner not in VOCABULARY | allowed:
            yield f"{path} imports {module}: {room(path)} may not know {inner}"
        if (
            inner == "store"
            and rest.endswith(("lmdb_journal", "memory_journal"))
            and room(path) not in ("opening", "store")
        ):
            yield f"{path} imports {module}: opening alone picks the journal"


def length_faults(path: str, source: str) -> Iterator[str]:
    sizes = {path: (source.count("\n"), FILE_LINES)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            sizes[f"{path}:{node.name}"] = (node.end_lineno - node.lineno + 1, FUNCTION_LINES)
    for place, (lines, limit) in sizes.items():
        if lines > LONG.get(place, limit):
            yield f"{place} has {lines} lines, more than {LONG.get(place, limit)}"


@pytest.mark.parametrize("path", SOURCES)
def test_imports_point_one_way(path: str) -> None:
    assert list(import_faults(path, SOURCES[path])) == []


@pytest.mark.parametrize("path", SOURCES)
def test_files_and_functions_stay_short(path: str) -> None:
    assert list(length_faults(path, SOURCES[path])) == []


@pytest.mark.parametrize("path", SOURCES)
def test_every_module_says_what_lives_in_it(path: str) -> None:
    assert ast.get_docstring(ast.parse(SOURCES[path]))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("queen/web/app.py", "import queen.store.format"),
        ("queen/web/app.py", "from queen import actors"),
        ("queen/store/writer.py", "from queen.actors.mailbox import Envelope"),
        ("queen/actors/engine.py", "from queen.broker import Broker"),
        ("queen/actors/engine.py", "from queen.store.lmdb_journal import LmdbJournal"),
        ("queen/broker.py", "from queen.store import writer"),
        ("queen/actors/partition.py", "def f():\n    import time"),
        ("queen/actors/partition_rules.py", "from trio import sleep"),
        ("queen/store/journal.py", "import os.path"),
        ("queen/store/writer.py", "import lmdb"),
        ("queen/web/parse.py", "from cbor2 import loads"),
        ("queen/events.py", "from queen.clock import Clock"),
        ("queen/audit/world.py", "from queen.actors.keeper import Keeper"),
        ("queen/audit/world.py", "import trio"),
        ("queen/audit/world.py", "from queen.store.lmdb_journal import LmdbJournal"),
    ],
)
def test_a_planted_import_is_seen(path: str, source: str) -> None:
    assert list(import_faults(path, source))


def test_a_planted_length_is_seen() -> None:
    assert list(length_faults("queen/x.py", "def f():\n" + "    pass\n" * FUNCTION_LINES))
    assert list(length_faults("queen/x.py", "a = 1\n" * (FILE_LINES + 1)))


# -- the manual ---------------------------------------------------------------------------------------------


def table(page: str, name: str) -> dict[str, list[str]]:
    """The table of a page that stands between `<!-- name -->` and `<!-- end -->`: its rows by their first cell."""
    text = (ROOT / "docs" / page).read_text().split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line[:3] == "| `"]
    return {first.strip("`"): others for first, *others in cells}


def test_every_queue_option_has_its_row_in_the_manual() -> None:
    defaults = {name: str(value).lower() for name, value in as_dict(DEFAULTS).items()}
    assert table("http.md", "options") == {
        name: [defaults[name], option.unit or "–", option.meaning] for name, option in OPTIONS.items()
    }


def test_every_setting_has_its_row_in_the_manual() -> None:

    assert table("operating.md", "settings") == {
        setting.flag: [
            f"`{setting.env}`",
            ("on" if setting.default else "off") if setting.kind == "boolean" else str(setting.default),
            setting.meaning,
        ]
        for setting in SETTINGS
    }
