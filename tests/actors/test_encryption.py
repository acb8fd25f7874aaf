"""Encryption from push to delivery (C4): what is on the disk, keys that are missing, rotation, and tampering."""

from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
import trio

from queen import Broker, Invalid, KeyMissing, KeyRing, NewMessage, SealBroken, open_broker
from queen.clock import TrioClock
from queen.store.format import erase, unpack
from queen.store.keyring import key_name
from queen.store.memory_journal import MemoryJournal
from tests.actors.world import Waiters, engine_of, opened, payloads, steps

KEY, OTHER = bytes(range(32)), bytes(range(100, 132))
RING = KeyRing([KEY])
SECRET = "Ada's blood group is AB negative"


async def encrypted(queen: Broker, name: str = "q", **options: Any) -> None:
    await queen.configure(name, {"encryptionEnabled": True, **options})


def found_in(folder: Path, text: str) -> bool:
    """Whether any file holds the text as UTF-8."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "data.mdb" for path in files)
    return any(text.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("on", [True, False])
async def test_no_byte_of_a_payload_is_in_the_data_folder(tmp_path: Path, on: bool, autojump_clock: Any) -> None:
    """C4, and off by default: the same search finds a plain one."""
    clock = TrioClock()
    async with open_broker(tmp_path / "data", keys=RING, clock=clock) as queen:
        if on:
            await encrypted(queen)
        await queen.push("q", {"patient": SECRET})
        delivery = await queen.pop("q")
        assert payloads(delivery) == [{"patient": SECRET}]
        await queen.ack(delivery.messages[0], "failed", error="not today")
        await queen.push("q", {"patient": SECRET})
        assert found_in(tmp_path / "data", SECRET) is not on
    assert found_in(tmp_path / "data", SECRET) is not on
    async with open_broker(tmp_path / "data", keys=RING, clock=clock) as queen:
        assert payloads(await queen.pop("q", batch=9)) == [{"patient": SECRET}] * 2
    assert found_in(tmp_path / "data", SECRET) is not on


async def test_a_payload_comes_back_to_the_character(autojump_clock: Any) -> None:
    """N5 holds for sealed payloads."""
    text = b'{"b": 1.0, "a": 1e400,  "c": "\\u00e9"}'
    async with opened(keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", msgspec.Raw(text))
        assert (await queen.pop("q")).messages[0].payload == text


async def test_without_a_key_there_is_no_encryption_and_no_plain_text(autojump_clock: Any) -> None:
    """C4."""
    async with opened() as queen:
        with pytest.raises(Invalid, match=r"^options\.encryptionEnabled: "):
            await encrypted(queen)
        await queen.push("q", 1)
        with pytest.raises(Invalid, match=r"^options\.encryptionEnabled: "):
            await encrypted(queen)
        await queen.configure("q", {"encryptionEnabled": False, "leaseTime": 5})


async def test_duplicates_do_not_upset_what_a_payload_is_bound_to(autojump_clock: Any) -> None:
    """P4: the messages behind a duplicate get other ids than their places in the request suggest."""
    async with opened(keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", "first", transaction_id="b")
        items = [NewMessage(queue="q", payload=name, transaction_id=name) for name in "abc"]
        receipts = await queen.push_many(items)
        assert [receipt.status for receipt in receipts] == ["queued", "duplicate", "queued"]
        assert payloads(await queen.pop("q", batch=9)) == ["first", "a", "c"]


async def test_switching_it_on_and_off_leaves_older_messages_as_they_are(autojump_clock: Any) -> None:
    """T5, C4: every record says how it is stored."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await queen.push("q", SECRET + "1")
        await encrypted(queen)
        await queen.push("q", SECRET + "2")
        await queen.configure("q", {"encryptionEnabled": False})
        await queen.push("q", SECRET + "3")
        assert payloads(await queen.pop("q", batch=9)) == [SECRET + digit for digit in "123"]
    plain = b"".join(frame for _, frame in journal.reopened().frames(0))
    assert [(SECRET + digit).encode() in plain for digit in "123"] == [True, False, True]


async def test_one_push_to_two_queues_seals_one_of_them(autojump_clock: Any) -> None:
    """It is decided per queue."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen, "secret")
        await queen.push_many([NewMessage(queue=name, payload=name + SECRET) for name in ("secret", "open")])
        assert payloads(await queen.pop("secret")) == ["secret" + SECRET]
        assert payloads(await queen.pop("open")) == ["open" + SECRET]
    plain = b"".join(frame for _, frame in journal.reopened().frames(0))
    assert ("open" + SECRET).encode() in plain
    assert ("secret" + SECRET).encode() not in plain


# -- keys that are not there --------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [KeyRing(), KeyRing([OTHER])], ids=["no key", "another key"])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_pop_without_the_key_leases_nothing(ring: KeyRing, auto_ack: bool, autojump_clock: Any) -> None:
    """C4: refused before anything is leased or completed, and nothing is lost by it."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", 1)
        taken = await queen.pop("q")
        await queen.push("q", 2)
        await queen.ack(taken.messages[0], "failed")  # one that waits at its old place, one behind the cursor
    async with opened(journal := journal.reopened(), keys=ring) as queen:
        before = journal.head
        for batch in (1, 9):
            with pytest.raises(KeyMissing, match=key_name(KEY)):
                await queen.pop("q", batch=batch, auto_ack=auto_ack)
            with pytest.raises(KeyMissing):
                await queen.pop("q", batch=batch, wait=True)
        assert journal.head == before
        assert engine_of(queen).house.leases == {}
    async with opened(journal.reopened(), keys=RING) as queen:
        assert payloads(await queen.pop("q", batch=9)) == [1, 2]


async def test_the_lost_key_is_still_known_after_the_records_are_checkpointed(autojump_clock: Any) -> None:
    """Its name is in a row of its own once no record behind the checkpoint tells of it."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", 1)
    for _ in range(2):
        journal = journal.reopened()
        async with opened(journal) as queen:
            assert engine_of(queen).core.keys_lost == {key_name(KEY)}
            with pytest.raises(KeyMissing):
                await queen.pop("q")


async def test_what_can_be_read_in_front_of_it_is_delivered(autojump_clock: Any) -> None:
    """A batch ends before the first message that can't be read."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await queen.push("q", 1)
        await queen.push("q", 2)
        await encrypted(queen)
        await queen.push("q", 3)
    async with opened(journal.reopened()) as queen:
        delivery = await queen.pop("q", batch=9)
        assert payloads(delivery) == [1, 2]
        for message in delivery:
            await queen.ack(message)
        with pytest.raises(KeyMissing):
            await queen.pop("q", batch=9)


async def test_a_push_to_an_encrypted_queue_without_a_key_is_refused_whole(autojump_clock: Any) -> None:
    """C4, P1: the server was started without its key."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
    async with opened(journal := journal.reopened()) as queen:
        before = journal.head
        with pytest.raises(KeyMissing):
            await queen.push_many([NewMessage(queue="q", payload=SECRET), NewMessage(queue="q", payload=SECRET)])
        assert journal.head == before
        assert not await queen.pop("q")


async def test_an_operator_can_turn_encryption_off_without_the_key(autojump_clock: Any) -> None:
    """The way out where a key is lost for good: new messages are plain, openly so."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
    async with opened(journal.reopened()) as queen:
        await queen.configure("q", {"encryptionEnabled": None})
        await queen.push("q", 1)
        assert payloads(await queen.pop("q")) == [1]


async def test_a_list_shows_it_without_its_payload_and_says_why(autojump_clock: Any) -> None:
    """C4: and everything else of it; with the key it shows all."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", {"patient": SECRET}, transaction_id="t")
        (listed,) = await queen.messages.list(queue="q")
        assert listed.payload is not None
        assert SECRET.encode() in listed.payload
    async with opened(journal.reopened()) as queen:
        found, _ = await queen.messages.get("t")
        for message in (*await queen.messages.list(queue="q"), found):
            assert message.transaction_id == "t"
            assert message.payload is None
            assert message.encryption_error is not None
            assert key_name(KEY) in message.encryption_error
        await queen.messages.delete("t")  # what can't be read can be deleted


# -- rotation -----------------------------------------------------------------------------------------------


async def test_rotation(autojump_clock: Any) -> None:
    """Old messages are read with the old key while it is in the ring; new ones are under the new key."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", "old")
    async with opened(journal := journal.reopened(), keys=KeyRing([OTHER, KEY])) as queen:
        await queen.push("q", "new")
        assert payloads(await queen.pop("q", batch=9)) == ["old", "new"]
    names = [pushed.key for seq, frame in journal.frames(0) if (pushed := unpack(seq, frame).pushed) is not None]
    assert names == [key_name(KEY), key_name(OTHER)]
    async with opened(journal.reopened(), keys=KeyRing([OTHER])) as queen:
        with pytest.raises(KeyMissing, match=key_name(KEY)):
            await queen.pop("q", "Default", group="readers")
        await queen.push("q", "later", partition="other")
        assert payloads(await queen.pop("q", "other")) == ["later"]


# -- tampering ----------------------------------------------------------------------------------------------


class Tampered(MemoryJournal):
    """Somebody has changed the last byte of every sealed record, and mended the checksums."""

    def frame(self, seq: int) -> bytes | None:
        frame = super().frame(seq)
        if frame is None:
            return None
        record = unpack(seq, frame)
        if record.pushed is None or record.pushed.key is None:
            return frame
        changed = bytearray(frame)
        changed[-1] ^= 1
        guard = seq.to_bytes(8) + bytes(changed[:2])
        changed[2:6] = crc32(changed[6:], crc32(guard)).to_bytes(4)
        return bytes(changed)


async def test_a_changed_ciphertext_is_seen_and_given_back(autojump_clock: Any) -> None:
    """The checksum is mended, the seal can't be."""
    journal = Tampered()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", 1)
        with pytest.raises(SealBroken):
            await queen.pop("q")
        assert (await queen.pop("q", "other")).because is None
        with pytest.raises(SealBroken):
            await queen.pop("q", wait=True)


async def test_what_does_not_open_is_not_completed_by_auto_ack(autojump_clock: Any) -> None:
    """C4, O7: it is opened before it is completed; what is in front of it is delivered."""
    journal = Tampered()
    async with opened(journal, keys=RING) as queen:
        await queen.push("q", "plain")
        await encrypted(queen)
        await queen.push("q", "sealed")
        before = journal.head
        assert payloads(await queen.pop("q", batch=9, auto_ack=True)) == ["plain"]
        for wait in (False, True):
            with pytest.raises(SealBroken):
                await queen.pop("q", batch=9, auto_ack=True, wait=wait)
        assert journal.head == before + 1
        (figures,) = await queen.statistics.queues()
        assert (figures.counts.pending, figures.counts.completed) == (1, 1)


async def test_auto_ack_gives_what_was_sealed_a_moment_ago(autojump_clock: Any) -> None:
    """A parked pop is answered in the commit of the push, before there is a record to be read."""
    async with opened(keys=RING) as queen, trio.open_nursery() as nursery:
        await encrypted(queen)
        await queen.push("q", 1)
        assert payloads(await queen.pop("q", auto_ack=True)) == [1]
        waiters = Waiters(queen, nursery)
        await waiters.add("w", "q", auto_ack=True)
        await queen.push("q", SECRET)
        await steps()
        assert [payloads(delivery) for _, delivery, _ in waiters.served] == [[SECRET]]


async def test_an_erased_sealed_payload_leaves_the_chain_whole(autojump_clock: Any) -> None:
    """X3, R5: digests are of what is stored, so they need no key."""
    journal = MemoryJournal()
    async with opened(journal, keys=RING) as queen:
        await encrypted(queen)
        await queen.push("q", SECRET)
    seq, frame = next((seq, frame) for seq, frame in journal.frames(0) if unpack(seq, frame).pushed is not None)
    assert unpack(seq, erase(seq, frame, [0])).payload_digests() == unpack(seq, frame).payload_digests()
