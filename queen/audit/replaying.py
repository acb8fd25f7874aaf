"""The journal as a stream of happenings: filtered, in order, and going on as it grows. What `queen replay` prints."""

from collections.abc import Collection, Iterator

import msgspec

from queen.audit.atlas import Atlas
from queen.audit.gone import Gone
from queen.audit.happenings import TYPES, Happening, happening
from queen.audit.index import pushes_of, records_touching
from queen.audit.reading import Past
from queen.audit.spans import concerns
from queen.errors import Invalid
from queen.events import AnyEvent, MessagesPushed
from queen.store.format import Record, partition_of, unpack
from queen.store.keyring import KeyRing, open_payload


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which happenings are looked for; None excludes nothing. `group` "" is the default group. `types` are those of
    `happenings.TYPES`."""

    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    transaction_id: str | None = None
    types: Collection[str] = ()

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.types if kind not in TYPES]
        if unknown:
            raise Invalid("type", f"must be one of {', '.join(TYPES)}; is {unknown[0]!r}")


class Replay:
    """Reads on from where it stopped: each `more` brings what has come since. `seq` is the last record it has seen.

    `ring` opens payloads, which are left out without one. `records` and `messages` count what was let through, a record
    of a thousand messages as a thousand."""

    def __init__(self, past: Past, wanted: Wanted, after: int = 0, *, ring: KeyRing | None = None) -> None:
        self._past = past
        self._wanted = wanted
        self._ring = ring
        self._gone: Gone | None = None
        self._places: dict[int, set[int]] = {}
        self._fits: dict[int, bool] = {}
        self.atlas = Atlas(past)
        self.seq = after
        self.events = 0
        self.messages = 0

    def more(self, until: int | None = None) -> Iterator[Happening]:
        """What is wanted of the records up to number `until` (None: the last one there is). Raises `ChainBroken`."""
        for record in self._records(until):
            for event in record.events:
                told = happening(event, record, self.atlas)
                if self._lets(event, told, record.partition):
                    self.events += 1
                    self.messages += told.count
                    yield self._with_payloads(told, event, record)

    def _records(self, until: int | None) -> Iterator[Record]:
        if self._wanted.transaction_id is not None:
            yield from self._records_of_one(self._wanted.transaction_id, until)
            return
        narrow = self._wanted.queue is not None or self._wanted.partition is not None
        for seq, frame in self._past.frames(self.seq):
            if until is not None and seq > until:
                return
            self.seq = seq
            if narrow and not self._of_interest(partition_of(frame), seq, frame):
                continue
            record = unpack(seq, frame)
            self.atlas.note(record)
            yield record

    def _records_of_one(self, transaction_id: str, until: int | None) -> Iterator[Record]:
        """The records of every message of that transactionId, by way of the index."""
        head = self._past.head
        last = head if until is None else min(until, head)
        found: dict[int, Record] = {}
        for push in pushes_of(self._past, transaction_id, last):
            partition = push.record.partition
            self._places.setdefault(partition, set()).add(push.position)
            found[push.record.seq] = push.record
            later = records_touching(self._past, partition, push.position, push.record.seq, last)
            found.update((record.seq, record) for record in later)
        for seq in sorted(found):
            if seq > self.seq:
                yield found[seq]
        self.seq = max(self.seq, last)

    def _of_interest(self, partition: int, seq: int, frame: bytes) -> bool:
        """Whether a record's partition is one of the wanted: most frames need not be taken apart to know."""
        if not partition:
            return True
        if partition not in self._fits:
            self.atlas.note(unpack(seq, frame))
            place = self.atlas.partition(partition)
            queue = None if place is None else self.atlas.queue(place.queue)
            self._fits[partition] = (
                self._wanted.queue in (None, queue)
                and place is not None
                and self._wanted.partition in (None, place.name)
            )
        return self._fits[partition]

    def _lets(self, event: AnyEvent, told: Happening, partition: int) -> bool:
        wanted = self._wanted
        if wanted.types and told.type not in wanted.types:
            return False
        if wanted.queue not in (None, told.queue) or wanted.partition not in (None, told.partition):
            return False
        if wanted.group is not None and (not hasattr(event, "group") or (told.group or "") != wanted.group):
            return False
        places = self._places.get(partition, ())
        return wanted.transaction_id is None or any(concerns(event, position) for position in places)

    def _with_payloads(self, told: Happening, event: AnyEvent, record: Record) -> Happening:
        if self._ring is None or not isinstance(event, MessagesPushed):
            return told
        gone = self._gone = self._gone or Gone(self._past)
        opened = [
            None if gone(record.partition, event.first + index) else open_payload(record, index, self._ring)[0]
            for index in range(len(event.sizes))
        ]
        return msgspec.structs.replace(
            told, payloads=[None if payload is None else msgspec.Raw(payload) for payload in opened]
        )
