"""Opens what the power left of a recorded folder and holds it against what had been answered; one worker of power.py.

    python -m tests.campaigns.power_judge RECORD SCRATCH VERDICTS SEED POINT...

A point is the number of the entry in whose midst the power fails. For each, images are made under every policy of
`power_disk`; each must open, show each queue as after its lane's last answer (or as after the step that was under way),
hold an unbroken chain and sound pages, and take new work. For each point, a line of JSON when it begins and one with
its verdict: where the process dies, the last line names the point.
"""

import random
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from queen import Broker, QueenError, open_broker
from queen.store import chain
from queen.store.lmdb_file import check_pages
from queen.store.lmdb_journal import LmdbJournal
from tests.campaigns.power_disk import POLICIES, SECTOR, Disk, Entry, Kind, Tree, read_record, write_tree
from tests.campaigns.power_work import LANES, Note, queue_of, state_of

NOTES = "notes"
EMPTY: list[Any] = [[], []]


class Verdict(msgspec.Struct):
    """What the images of one point showed."""

    point: int
    images: int = 0
    violations: list[str] = []


class Claim(NamedTuple):
    """How a lane's queue must be: in one of these states, and still under this lease if that is certain."""

    states: list[list[Any]]
    step: str
    lease: tuple[str, str] | None


class Claims:
    """All that was noted, and what follows from it for a moment."""

    def __init__(self, entries: list[Entry]) -> None:
        self._notes: list[list[tuple[int, Note]]] = [[] for _ in range(LANES)]
        for index, entry in enumerate(entries):
            if entry.path == NOTES and entry.kind is Kind.WRITE:
                note = msgspec.json.decode(entry.data, type=Note)
                self._notes[note.lane].append((index, note))

    def at(self, point: int) -> Iterator[tuple[int, Claim]]:
        """Each lane's claim where the power fails before entry `point` is over."""
        answered = False
        for lane, notes in enumerate(self._notes):
            claim = Claim([EMPTY], "nothing", None)
            step = 0
            for index, note in notes:
                if index < point:
                    step = note.step
                if note.what == "answered":
                    answered = index < point
                elif note.what == "state" and answered:
                    claim = Claim([note.state], f"{note.step} {note.text}", note.lease)
                elif note.what == "state" and note.step == step:
                    claim = Claim([*claim.states, note.state], f"{claim.step}, or after the next", None)
                elif note.step > step:
                    break
            yield lane, claim


def images(entries: list[Entry], points: list[int], seed: int) -> Iterator[tuple[int, str, Tree]]:
    """(point, policy, image), points in rising order; policies that come to the same thing are taken once."""
    disk = Disk()
    done = 0
    for point in points:
        while done < point:
            _take(disk, entries[done])
            done += 1
        if entries[point].path != NOTES:
            disk.begin(entries[point])
        seen: list[Tree] = []
        for policy in POLICIES:
            image = disk.image(policy, random.Random(f"{seed} {point} {policy}"))
            if image not in seen:
                seen.append(image)
                yield point, policy, image
        if entries[point].path != NOTES:
            disk.finish(entries[point])
        done = point + 1


def _take(disk: Disk, entry: Entry) -> None:
    if entry.path != NOTES:
        disk.do(entry)


def examine(image: Tree, claims: list[tuple[int, Claim]], folder: Path, chance: random.Random) -> list[str]:
    """Everything that is wrong with an image."""
    data = image.get("data", {})
    assert isinstance(data, dict)
    _spoil_lock(data, chance)
    shutil.rmtree(folder, ignore_errors=True)
    write_tree(image, folder)
    try:
        found = trio.run(_examine, folder / "data", claims)
        check_pages(folder / "data/journal")
        journal = LmdbJournal.open(folder / "data/journal", readonly=True)
        try:
            chain.verify(journal.frames(0))
        finally:
            journal.close()
    except Exception as error:  # whatever it is: this image should have opened
        found = [f"does not open: {error!r}"]
    return found


async def _examine(data: Path, claims: list[tuple[int, Claim]]) -> list[str]:
    found = []
    async with open_broker(data, reserve=0) as broker:
        for lane, claim in claims:
            state = await state_of(broker, queue_of(lane))
            if state not in claim.states:
                found.append(f"lane {lane} is not as after step {claim.step}: {_difference(state, claim.states[0])}")
            elif claim.lease is not None:
                found += await _ends_lease(broker, *claim.lease)
        found += await _works(broker)
    return found


async def _ends_lease(broker: Broker, transaction_id: str, lease: str) -> list[str]:
    try:
        await broker.ack(transaction_id, lease_id=lease)
    except QueenError as error:
        # Deleted by its own lane, the message is gone; that the state showed.
        return [] if "there is no" in str(error) else [f"the lease of {transaction_id} does not hold: {error}"]
    return []


async def _works(broker: Broker) -> list[str]:
    await broker.push("afterwards", "new", transaction_id="afterwards")
    delivery = await broker.pop("afterwards")
    if [message.data for message in delivery] != ["new"]:
        return ["new work is not delivered"]
    await broker.ack(delivery.messages[0])
    return []


def _difference(state: list[Any], wanted: list[Any]) -> str:
    lost = [each for part, other in zip(wanted, state, strict=True) for each in part if each not in other]
    added = [each for part, other in zip(state, wanted, strict=True) for each in part if each not in other]
    return f"{len(lost)} missing, {lost[:1]}; {len(added)} instead, {added[:1]}"


def _spoil_lock(data: Tree, chance: random.Random) -> None:
    """LMDB's table of readers is shared memory in a file: any of its sectors may hold anything that it ever held."""
    journal = data.get("journal", {})
    assert isinstance(journal, dict)
    lock = journal.get("lock.mdb")
    if isinstance(lock, bytes) and chance.random() < 0.5:
        journal["lock.mdb"] = b"".join(chance.randbytes(SECTOR) for _ in range(0, len(lock), SECTOR))


def main(record: Path, scratch: Path, output: Path, seed: int, points: list[int]) -> None:
    entries = read_record(record)
    claims = Claims(entries)
    with output.open("wb", buffering=0) as lines:
        for point, tries in groupby(images(entries, points, seed), key=itemgetter(0)):
            verdict = Verdict(point)
            lines.write(msgspec.json.encode(verdict) + b"\n")
            for _, policy, image in tries:
                verdict.images += 1
                chance = random.Random(f"{seed} {point} {policy}")
                for fault in examine(image, list(claims.at(point)), scratch, chance):
                    where = f"{entries[point].kind.name} of {entries[point].path}"
                    verdict.violations.append(f"point {point} ({where}; {policy}): {fault}")
            lines.write(msgspec.json.encode(verdict) + b"\n")
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), list(map(int, sys.argv[5:])))
