"""Encryption at the door of a partition (C4): what is decided to be stored is sealed, and what can't be opened is not
leased. Here and not in the rules, because a seal takes chance and keys; a decision is a proposal until it is recorded.
"""

from collections.abc import Collection

from msgspec.structs import replace

from queen.actors.decision import Decision
from queen.errors import KeyMissing
from queen.events import Event, MessagesPushed
from queen.history import History, PushedRun
from queen.names import message_id
from queen.replies import Grant
from queen.store.keyring import KeyRing, missing


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


def readable(grant: Grant, history: History, lost: Collection[str]) -> int:
    """How many messages of the grant, from its first on, are not sealed with one of the `lost` keys.

    Raises `KeyMissing` where the first one is."""
    run: PushedRun | None = None
    for count, taken in enumerate(grant.taken):
        if run is None or not run.first <= taken.position < run.first + run.length:
            run = next(history.runs(taken.position))
        if run.key in lost:
            if not count:
                raise KeyMissing(missing(str(run.key)))
            return count
    return len(grant.taken)
