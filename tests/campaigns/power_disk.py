"""A disk as the power leaves it: what a record of writes and syncs (`power_record.c`) may have come to. Pure.

What is promised of a disk is little. A sync of a file makes durable what was written to it before; a sync of a folder
its names. Of everything else, each sector of 512 bytes holds what was durable or any later content of its own,
independently of all others; a file's size may be any that it had since; a change of names happens whole or not at all,
and in order within one folder, but not between folders.
"""

import random
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

SECTOR: Final = 512
_HEADER: Final = struct.Struct("=IIQQQ")


class Kind(IntEnum):
    """What an entry of the record tells, as `power_record.c` numbers it."""

    WRITE = 1
    SYNCED_WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    CREATE = 5
    MKDIR = 6
    RENAME = 7
    UNLINK = 8


class Entry(NamedTuple):
    """One thing that happened. `data`: the bytes written, or the new path of a rename."""

    kind: Kind
    path: str
    file: int
    offset: int
    data: bytes


def read_record(path: Path) -> list[Entry]:
    """All entries of a record, in order."""
    content = path.read_bytes()
    entries = []
    at = 0
    while at < len(content):
        kind, path_size, file, offset, size = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        name = content[at : at + path_size].decode()
        at += path_size
        entries.append(Entry(Kind(kind), name, file, offset, content[at : at + size]))
        at += size
    return entries


class Write(NamedTuple):
    """Bytes at an offset."""

    offset: int
    data: bytes

    def size_after(self, size: int) -> int:
        return max(size, self.offset + len(self.data))


class Resize(NamedTuple):
    """The file cut or lengthened."""

    size: int

    def size_after(self, size: int) -> int:
        return self.size


@dataclass(eq=False)
class File:
    """A file's durable content, and what was done to it since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Resize] = field(default_factory=list)

    def do(self, change: Write | Resize) -> None:
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, change)
        self.pending.clear()

    def write_synced(self, write: Write) -> None:
        """O_DSYNC: these bytes are durable at once, others are none the more so."""
        overlapping = [other for other in self.pending if isinstance(other, Write) and _meet(other, write)]
        assert not overlapping, "a synced write over an unsynced one: what a disk may make of that is not modelled"
        apply(self.durable, write)


@dataclass(eq=False)
class Folder:
    """A folder's durable names."""

    durable: dict[str, "File | Folder"] = field(default_factory=dict)


class Naming(NamedTuple):
    """One change of names, in one folder or two: whole or not at all."""

    effects: tuple[tuple[Folder, str, File | Folder | None], ...]

    def apply(self) -> None:
        for folder, name, node in self.effects:
            set_name(folder.durable, name, node)


Policy: TypeAlias = Literal["nothing", "everything", "last", "operations", "sectors"]
"""What of the unsynced survives: none of it; all of it; only what was done last; each operation, or each sector and
each change of names, by chance."""
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


class Disk:
    """The state after some entries of a record: names as the process sees them, and what is durable."""

    def __init__(self) -> None:
        self.root = Folder()
        self._seen: dict[str, File | Folder] = {"": self.root}
        self._numbers: dict[int, File | Folder] = {}
        """By inode; one that is used again names the newer."""
        self._nodes: list[File | Folder] = [self.root]
        self._namings: list[Naming] = []
        self._last: File | Naming | None = None

    def do(self, entry: Entry) -> None:
        """Take in the next entry."""
        match entry.kind:
            case Kind.WRITE:
                self._change(entry, Write(entry.offset, entry.data))
            case Kind.SYNCED_WRITE:
                self._file(entry).write_synced(Write(entry.offset, entry.data))
            case Kind.TRUNCATE:
                self._change(entry, Resize(entry.offset))
            case Kind.SYNC:
                self._sync(entry)
            case Kind.CREATE:
                self._name(entry.path, self._known(entry.file, File()))
            case Kind.MKDIR:
                self._name(entry.path, self._known(entry.file, Folder()))
            case Kind.RENAME:
                self._rename(entry.path, entry.data.decode())
            case Kind.UNLINK:
                self._name(entry.path, None)

    def begin(self, entry: Entry) -> None:
        """Take in an entry in whose midst the power fails: a synced write is not yet one, a sync has done nothing.
        `finish` takes in the rest of it."""
        if entry.kind is Kind.SYNCED_WRITE:
            entry = entry._replace(kind=Kind.WRITE)
        if entry.kind is not Kind.SYNC:
            self.do(entry)

    def finish(self, entry: Entry) -> None:
        """The entry that was begun last is over."""
        if entry.kind is Kind.SYNCED_WRITE:
            file = self._file(entry)
            file.pending.pop()
            self.do(entry)
        elif entry.kind is Kind.SYNC:
            self.do(entry)

    def image(self, policy: Policy, chance: random.Random) -> "Tree":
        """One of the states that the power may leave behind."""
        names = self._surviving(policy, chance)
        return {name: self._content(node, names, policy, chance) for name, node in names[id(self.root)].items()}

    # -- what happens -------------------------------------------------------------------------------------

    def _known(self, number: int, node: File | Folder) -> File | Folder:
        self._numbers[number] = node
        self._nodes.append(node)
        return node

    def _file(self, entry: Entry) -> File:
        node = self._numbers[entry.file]
        assert isinstance(node, File), f"{entry.path} is no file"
        return node

    def _change(self, entry: Entry, change: Write | Resize) -> None:
        file = self._file(entry)
        file.do(change)
        self._last = file

    def _sync(self, entry: Entry) -> None:
        node = self._numbers.get(entry.file, self.root)
        if isinstance(node, File):
            node.sync()
            return
        for naming in self._namings:
            if any(folder is node for folder, _, _ in naming.effects):
                naming.apply()
        self._namings = [n for n in self._namings if not any(folder is node for folder, _, _ in n.effects)]

    def _place(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self._seen[parent]
        assert isinstance(folder, Folder), f"{parent} is no folder"
        return folder, name

    def _name(self, path: str, node: File | Folder | None) -> None:
        if node is None:
            del self._seen[path]
        else:
            self._seen[path] = node
        self._happened(Naming(((*self._place(path), node),)))

    def _rename(self, old: str, new: str) -> None:
        node = self._seen[old]
        moved = {path: each for path, each in self._seen.items() if path == old or path.startswith(old + "/")}
        for path, each in moved.items():
            del self._seen[path]
            self._seen[new + path[len(old) :]] = each
        self._happened(Naming(((*self._place(old), None), (*self._place(new), node))))

    def _happened(self, naming: Naming) -> None:
        self._namings.append(naming)
        self._last = naming

    # -- what is left of it -------------------------------------------------------------------------------

    def _surviving(self, policy: Policy, chance: random.Random) -> dict[int, dict[str, File | Folder]]:
        """Each folder's names, by the folder's identity."""
        names = {id(node): dict(node.durable) for node in self._nodes if isinstance(node, Folder)}
        halted: set[int] = set()
        for naming in self._namings:
            touched = {id(folder) for folder, _, _ in naming.effects}
            if touched & halted or not self._survives(naming, policy, chance):
                halted |= touched
                continue
            for folder, name, node in naming.effects:
                set_name(names[id(folder)], name, node)
        return names

    def _survives(self, naming: Naming, policy: Policy, chance: random.Random) -> bool:
        if policy in ("nothing", "everything"):
            return policy == "everything"
        # What is not about names alone is only worth looking at with the names there.
        return chance.random() < 0.7 if policy != "last" else True

    def _content(
        self,
        node: File | Folder,
        names: dict[int, dict[str, File | Folder]],
        policy: Policy,
        chance: random.Random,
    ) -> "Tree | bytes":
        if isinstance(node, Folder):
            return {name: self._content(each, names, policy, chance) for name, each in names[id(node)].items()}
        content = bytearray(node.durable)
        pending = node.pending
        if policy == "everything":
            chosen = pending
        elif policy == "last":
            chosen = pending[-1:] if node is self._last else []
        elif policy == "operations":
            chosen = [change for change in pending if chance.random() < 0.5]
        elif policy == "sectors":
            return _torn(content, pending, chance)
        else:
            chosen = []
        for change in chosen:
            apply(content, change)
        return bytes(content)


Tree: TypeAlias = "dict[str, Tree | bytes]"
"""Files and folders by name."""


def apply(content: bytearray, change: Write | Resize) -> None:
    """Do it."""
    size = change.size_after(len(content))
    if size > len(content):
        content.extend(bytes(size - len(content)))
    if isinstance(change, Write):
        content[change.offset : change.offset + len(change.data)] = change.data
    else:
        del content[size:]


def set_name(names: dict[str, File | Folder], name: str, node: File | Folder | None) -> None:
    """Give or take away a name."""
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def write_tree(tree: Tree, into: Path) -> None:
    """Make an image's files."""
    into.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (into / name).write_bytes(content)
        else:
            write_tree(content, into / name)


def _meet(one: Write, other: Write) -> bool:
    return one.offset < other.offset + len(other.data) and other.offset < one.offset + len(one.data)


def _torn(content: bytearray, pending: list[Write | Resize], chance: random.Random) -> bytes:
    """Each sector in one of its versions, and the size one of those that the file had."""
    sizes = [len(content)]
    versions: dict[int, list[Write]] = {}
    for change in pending:
        sizes.append(change.size_after(sizes[-1]))
        if isinstance(change, Write) and change.data:
            last = (change.offset + len(change.data) - 1) // SECTOR
            for sector in range(change.offset // SECTOR, last + 1):
                versions.setdefault(sector, []).append(change)
    size = chance.choice(sizes)
    bias = chance.choice((0.1, 0.5, 0.9))
    content.extend(bytes(max(max(sizes) - len(content), 0)))
    for sector, writes in versions.items():
        if chance.random() > bias:
            continue
        # Writes go to the page in order: a version holds all that came before it.
        for write in writes[: chance.randint(1, len(writes))]:
            start, stop = max(sector * SECTOR, write.offset), min((sector + 1) * SECTOR, write.offset + len(write.data))
            content[start:stop] = write.data[start - write.offset : stop - write.offset]
    del content[size:]
    return bytes(content)
