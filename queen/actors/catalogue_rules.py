"""Deciding what happens to the catalogue: queues made and configured, partitions made, groups met. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from queen.actors.catalogue_state import Catalogue, Group, Queue, options_to
from queen.errors import Invalid
from queen.events import GroupStarted, PartitionCreated, QueueConfigured, QueueCreated
from queen.options import DEFAULTS, QueueOptions, merge


def create_queue(
    catalogue: Catalogue, name: str, id: int, namespace: str | None, task: str | None, options: QueueOptions = DEFAULTS
) -> QueueCreated:
    """A new queue (P5, C1)."""
    return QueueCreated(catalogue.next_queue, id.to_bytes(16), name, namespace, task, options_to(options))


def create_partition(queue: Queue, name: str, id: int) -> PartitionCreated:
    """A new partition of the queue."""
    return PartitionCreated(queue.number, id.to_bytes(16), name)


def configure(
    queue: Queue, changes: Mapping[str, Any], namespace: str | UnsetType | None, task: str | UnsetType | None
) -> QueueConfigured | None:
    """C1, C2: what is not given stays. None where nothing changes; raises `Invalid`."""
    options = merge(queue.options, changes)
    kept_namespace = queue.namespace if namespace is UNSET else namespace
    kept_task = queue.task if task is UNSET else task
    if options == queue.options and kept_namespace == queue.namespace and kept_task == queue.task:
        return None
    assert not isinstance(kept_namespace, UnsetType)
    assert not isinstance(kept_task, UnsetType)
    return QueueConfigured(queue.number, kept_namespace, kept_task, options_to(options))


def check_options(options: QueueOptions, keys: bool) -> None:
    """C4: without a server key there is no encryption, and no silent plain text either."""
    if options.encryption_enabled and not keys:
        raise Invalid("options.encryptionEnabled", "the server has no encryption key")


def start_group(queue: Queue, name: str, new_only: bool, from_at: int, head_seq: int) -> Group:
    """G2: a group that has not met the queue yet. What it wants is kept by `group_started`."""
    return Group(queue.next_group, name, head_seq if new_only else 0, from_at, recorded=False)


def group_started(queue: Queue, group: Group) -> GroupStarted:
    """The event of a group that `start_group` made."""
    assert group.name is not None
    return GroupStarted(queue.number, group.number, group.name, group.after_seq, group.from_at)
