"""The short form of power.py, and the disk that it is built on."""

import random
from pathlib import Path

import pytest

from tests.campaigns.power import SMALL, campaign, compiler
from tests.campaigns.power_disk import POLICIES, SECTOR, Disk, Entry, Kind, Policy

SEED = 1
needs_compiler = pytest.mark.skipif(
    compiler() is None, reason="LOSS OF POWER IS NOT TESTED: the recorder needs a C compiler, and none is here"
)


@needs_compiler
def test_what_was_answered_survives_a_loss_of_power(tmp_path: Path) -> None:
    """P1, O8, A5, R5: at each point of the short form, every image opens and holds it."""
    result = campaign(tmp_path, SMALL, SEED)
    assert result.violations == []
    assert result.images > SMALL.points


@needs_compiler
@pytest.mark.parametrize("fault", ["metasync", "names"])
def test_a_sync_that_is_left_out_is_found(tmp_path: Path, fault: str) -> None:
    """`python -m tests.campaigns.power --teeth` plants the others as well."""
    assert campaign(tmp_path, SMALL._replace(points=40), SEED, fault).violations


OLD, NEW = b"o" * SECTOR, b"n" * SECTOR


def disk(*entries: Entry) -> Disk:
    made = Disk()
    for entry in (Entry(Kind.CREATE, "f", 1, 0, b""), Entry(Kind.SYNC, "", 0, 0, b""), *entries):
        made.do(entry)
    return made


def write(data: bytes, at: int = 0, kind: Kind = Kind.WRITE) -> Entry:
    return Entry(kind, "f", 1, at, data)


SYNC = Entry(Kind.SYNC, "f", 1, 0, b"")


def images(made: Disk, policy: Policy, tries: int = 200) -> set[object]:
    chance = random.Random(SEED)
    return {made.image(policy, chance).get("f") for _ in range(tries)}


def test_what_was_synced_is_in_every_image() -> None:
    for made in (disk(write(OLD), SYNC), disk(write(OLD, kind=Kind.SYNCED_WRITE))):
        assert {content for policy in POLICIES for content in images(made, policy)} == {OLD}


def test_each_unsynced_sector_is_lost_or_there_by_itself() -> None:
    made = disk(write(OLD + OLD), SYNC, write(NEW + NEW))
    assert images(made, "sectors") == {OLD + OLD, OLD + NEW, NEW + OLD, NEW + NEW}
    assert images(made, "operations") == {OLD + OLD, NEW + NEW}
    assert (images(made, "nothing"), images(made, "everything")) == ({OLD + OLD}, {NEW + NEW})


def test_a_file_may_be_shorter_than_what_was_written_or_hold_zeros() -> None:
    assert images(disk(write(NEW)), "sectors") == {b"", bytes(SECTOR), NEW}


def test_of_several_contents_of_a_sector_any_may_be_there() -> None:
    made = disk(write(b"1" * SECTOR), SYNC, write(b"2" * SECTOR), write(b"3" * SECTOR))
    assert images(made, "sectors") == {b"1" * SECTOR, b"2" * SECTOR, b"3" * SECTOR}
    assert images(made, "last") == {b"3" * SECTOR}


def test_a_renaming_holds_once_its_folder_is_synced() -> None:
    renamed = Entry(Kind.RENAME, "f", 0, 0, b"g")
    made = disk(write(OLD), SYNC, renamed)
    assert {frozenset(made.image("sectors", random.Random(seed))) for seed in range(50)} == {
        frozenset({"f"}),
        frozenset({"g"}),
    }
    made.do(Entry(Kind.SYNC, "", 0, 0, b""))
    assert made.image("nothing", random.Random(SEED)) == {"g": OLD}


def test_amid_a_synced_write_it_is_not_yet_one() -> None:
    made = disk(write(OLD), SYNC)
    made.begin(write(NEW, kind=Kind.SYNCED_WRITE))
    assert images(made, "sectors") == {OLD, NEW}
    made.finish(write(NEW, kind=Kind.SYNCED_WRITE))
    assert images(made, "nothing") == {NEW}
