"""The world at an instant: the nearest moment that was kept, and the records since; without one, all of them."""

from collections.abc import Callable, Iterator

from queen.actors.catalogue_state import Slot
from queen.actors.snapshots import VERSION, read_partition
from queen.audit.index import catalogue_records, checkpoint, pushed_run
from queen.audit.reading import Moment, Past, read
from queen.audit.world import World
from queen.errors import ChainBroken
from queen.store.format import unpack, unpack_row
from queen.store.journal import Table
from queen.store.moments import Kept, read_moment, read_row_key, row_key

Progress = Callable[[int, int], None]
"""Called now and then with the record that was reached, and the last one."""
_EVERY = 1000


def world_at(past: Past, moment: Moment, progress: Progress = lambda seq, last: None) -> World:
    """Everything as it was behind record `moment.seq`. Raises `ChainBroken` at a damaged record."""
    world = World()
    kept = kept_before(past, moment.seq)
    if kept is not None:
        _begin(past, world, kept)
    for seq, frame in past.frames(world.seq):
        if seq > moment.seq:
            break
        world.apply(unpack(seq, frame))
        if seq % _EVERY == 0:
            progress(seq, moment.seq)
    world.sum_up()
    return world


def kept_before(past: Past, seq: int) -> Kept | None:
    """The last moment whose rows are all of record `seq` at most, None where there is none."""
    if not checkpoint(past):
        return None
    stop = seq
    while True:
        found = read_moment(past.floor(Table.MOMENTS, row_key(0, stop)))
        if found is None or found.last <= seq:
            return found
        stop = found.seq - 1


def _begin(past: Past, world: World, kept: Kept) -> None:
    """The catalogue of that moment from its own records, and each partition from its last row."""
    for record in catalogue_records(past, kept.seq):
        world.apply(record)
    for number, value in _rows(past, kept.last):
        row = unpack_row(value)
        if row[0] != VERSION:
            raise ChainBroken("A moment has an unknown version; 'queen verify --rebuild' makes it anew.")
        seq, queue_number, id, name, created_at, state = read_partition(number, row)
        queue = world.catalogue.numbers.get(queue_number)
        if queue is not None:
            world.catalogue.add_slot(Slot(number, queue, id, name, created_at, state.deleted))
            world.states[number] = state
            world.seqs[number] = seq
    last = read(past, kept.seq)
    world.seq, world.at, world.shift = last.seq, last.at, last.shift


def _rows(past: Past, last: int) -> Iterator[tuple[int, bytes]]:
    """Each partition's last row of record `last` at most. From one partition to the next by two lookups, however many
    moments there are."""
    partition = 0
    while following := past.scan(Table.MOMENTS, row_key(partition + 1, 0), None, 1):
        partition = read_row_key(following[0][0])[0]
        found = past.floor(Table.MOMENTS, row_key(partition, last))
        if found is not None and read_row_key(found[0])[0] == partition:
            yield partition, found[1]


def ages(past: Past, world: World, slot: Slot) -> tuple[int | None, int | None]:
    """When the oldest and the newest message were created that existed then; None where there was none."""
    state = world.states.get(slot.number)
    if state is None:
        return None, None
    first, last = state.deleted.skip(1), state.deleted.last_before(state.next_position)
    if first > last:
        return None, None
    return _created_at(past, world, slot.number, first), _created_at(past, world, slot.number, last)


def _created_at(past: Past, world: World, partition: int, position: int) -> int | None:
    shown = world.pushes.shown(partition, position)
    if shown is None:
        run = pushed_run(past, partition, position)
        shown = None if run is None else run.shown_at
    return shown
