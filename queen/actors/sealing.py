"""Encryption at the door of a partition (C4): what is decided to be stored is sealed, and what can't be opened is not
leased. Here and not in the rules, because a seal takes chance and keys; a decision is a proposal until it is recorded.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from queen.actors.decision import Decision
from queen.errors import KeyMissing, QueenError
from queen.events import Event, MessagesPushed
from queen.history import History, PushedRun
from queen.names import message_id
from queen.replies import Grant
from queen.store.keyring import KeyRing, missing
from queen.store.records import Records

Opens = Callable[[PushedRun, int], None]
"""Raises where the message at a position of a run can't be opened."""


def sealed(decision: Decision, ring: KeyRing, used: set[str]) -> Decision:
    """The decision of a push with its payloads sealed, the key's name noted in `used`. Raises `KeyMissing`: never
    silent plain text."""
    if ring.current is None:
        raise KeyMissing("the queue's messages are to be encrypted, and this server has no encryption key")
    used.add(ring.current)
    payloads: tuple[bytes, ...] = ()
    events: list[Event] = []
    for event in decision.events:
        if isinstance(event, MessagesPushed):
            base = int.from_bytes(event.base)
            payloads = tuple(
                [ring.seal(payload, message_id(base, index)) for index, payload in enumerate(decision.payloads)]
            )
            events.append(replace(event, sizes=tuple(map(len, payloads)), key=ring.current))
        else:
            events.append(event)
    return Decision(tuple(events), decision.reply, payloads)


def readable(grant: Grant, history: History, lost: Collection[str], opens: Opens | None = None) -> int:
    """How many messages of the grant, from its first on, are not sealed with one of the `lost` keys, and do open where
    `opens` is given. Raises what is wrong with the first one: `KeyMissing`, `SealBroken`, `ChainBroken`."""
    run: PushedRun | None = None
    for count, taken in enumerate(grant.taken):
        if run is None or not run.first <= taken.position < run.first + run.length:
            run = next(history.runs(taken.position))
        try:
            if run.key in lost:
                raise KeyMissing(missing(str(run.key)))
            if opens is not None and run.key is not None:
                opens(run, taken.position)
        except QueenError:
            if not count:
                raise
            return count
    return len(grant.taken)


def opener(records: Records, durable: int, ring: KeyRing) -> Opens:
    """Looks whether sealed messages open, those of records up to `durable`; what is younger was sealed by this process
    a moment ago."""

    def opens(run: PushedRun, position: int) -> None:
        if run.seq > durable:
            return
        record = records.read(run.seq)
        pushed, index = record.pushed, position - run.first
        assert pushed is not None, "a run points at its record"
        payload = record.payload(index)
        if payload is not None and pushed.key is not None:  # None: erased
            ring.open(pushed.key, payload, message_id(int.from_bytes(pushed.base), index))

    return opens
