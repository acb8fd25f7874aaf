"""`decide`: one command against one partition's state gives events and a reply, or a refusal. Pure.

decide(state, command, now, options, history) raises a `QueenError` to refuse, reads and never changes. The rules
themselves live beside this table, by subject.
"""

from collections.abc import Callable
from typing import Any

from queen.actors import ack_rules, delivery_rules, message_rules, question_rules, time_rules
from queen.actors.decision import Decision
from queen.actors.partition_state import Partition
from queen.commands import (
    Ack,
    Bury,
    Census,
    Clear,
    Delete,
    Explain,
    Extend,
    Join,
    Look,
    PartitionCommand,
    Pop,
    Push,
    Release,
    Retry,
    Seek,
    Survey,
    Tick,
)
from queen.history import History
from queen.options import QueueOptions

Rule = Callable[[Partition, Any, int, QueueOptions, History], Decision]


def _tick(state: Partition, command: Tick, now: int, options: QueueOptions, history: History) -> Decision:
    return time_rules.tick(state, now, options, history)


_RULES: dict[type, Rule] = {
    Push: delivery_rules.push,
    Pop: delivery_rules.pop,
    Join: delivery_rules.join,
    Extend: delivery_rules.extend,
    Release: delivery_rules.release,
    Ack: ack_rules.ack,
    Retry: message_rules.retry,
    Bury: message_rules.bury,
    Delete: message_rules.delete,
    Clear: message_rules.clear,
    Seek: message_rules.seek,
    Census: question_rules.census,
    Explain: question_rules.explanation,
    Look: question_rules.look,
    Survey: question_rules.survey,
    Tick: _tick,
}


def decide(state: Partition, command: PartitionCommand, now: int, options: QueueOptions, history: History) -> Decision:
    """Decide one command. Every deadline up to `now` must have been ticked before (the shell does that)."""
    return _RULES[type(command)](state, command, now, options, history)
