"""The chain (X3): every record names its predecessor's digest, so a change, a loss or a swap shows. Pure.

It proves nothing about records cut off at the end, nor against someone who writes all of it anew: for those, compare
with a head's digest that was kept elsewhere.
"""

from collections.abc import Iterable, Iterator

from queen.errors import ChainBroken
from queen.store.format import ORIGIN, Record, digest_of, unpack


def follow(
    frames: Iterable[tuple[int, bytes]], after: int = 0, digest: bytes = ORIGIN
) -> Iterator[tuple[Record, bytes]]:
    """Unpack frames in order, each with its digest, while they follow from record `after` of digest `digest`.

    Raises `ChainBroken` at the first that doesn't, with its number and the reason, and `FormatUnknown`.
    """
    for seq, frame in frames:
        if seq != after + 1:
            gap = f"record {after + 1} is missing" if seq > after else "it stands in the wrong place"
            raise ChainBroken(f"Record {seq} does not follow record {after}: {gap}.")
        record = unpack(seq, frame)
        if record.prev != digest:
            raise ChainBroken(f"Record {seq} does not follow record {after}: it names another predecessor.")
        after, digest = seq, digest_of(record)
        yield record, digest


def verify(frames: Iterable[tuple[int, bytes]], after: int = 0, digest: bytes = ORIGIN) -> tuple[int, bytes]:
    """Walk all of `frames`; return the last record's number and digest. Raises as `follow` does."""
    for record, digest_here in follow(frames, after, digest):
        after, digest = record.seq, digest_here
    return after, digest
