"""What happens in a simulated world, drawn from a seed as plain data: what each client asks for, and when what breaks.

A plan is complete before anything runs, and no part of it depends on another, so that parts can be taken out of it.
"""

import random
from typing import Any, NamedTuple

from queen.names import SECOND

QUEUES = ("a", "b")
PARTITIONS = ("p0", "p1", "p2")
GROUPS = (None, None, None, "g", "h")
CLIENTS = 4
SLACK_S, COMMITS = 0.1, 4
"""How late what is due may come: this long, and so many commits."""
FINISH_S = 40.0
"""Faults come within this time, in simulated seconds."""

OPTIONS: dict[str, list[Any]] = {
    "leaseTime": [20, 5, 2],
    "retryLimit": [3, 1, 0],
    "retryDelay": [0, 0, 500, 2000],
    "retryBackoff": [1, 2.5],
    "ttl": [0, 0, 0, 8],
    "dlqAfterMaxRetries": [False, True],
    "delayedProcessing": [0, 0, 0, 2],
    "windowBuffer": [0, 0, 0, 1],
    "retentionEnabled": [False, False, True],
    "retentionSeconds": [0, 10],
    "completedRetentionSeconds": [0, 3, 10],
    "maxSize": [0, 0, 0, 12],
    "maxWaitTimeSeconds": [0, 0, 3],
    "priority": [0, 0, 5],
    "encryptionEnabled": [False, False, False, True],
    "ordering": ["strict", "strict", "relaxed"],
}
# What a world begins with, so that other rules don't cut each story short; None is anything at all.
THEMES: list[dict[str, Any] | None] = [
    *({}, {}, {}, None, {"retryDelay": 500, "retryBackoff": 2.5}, {"ttl": 8}, {"windowBuffer": 1}),
    *({"retentionEnabled": True, "completedRetentionSeconds": 3}, {"delayedProcessing": 2}, {"maxSize": 12}),
]
KINDS = {
    "push": 22,
    "pop": 30,
    "settle": 30,
    "transact": 6,
    "release": 3,
    "extend": 3,
    "retry": 3,
    "bury": 2,
    "delete": 2,
    "look": 4,
    "count": 2,
    "seek": 2,
    "configure": 3,
    "clear": 0.4,
    "delete_queue": 0.3,
    "delete_group": 0.5,
    "compact": 0.4,
}
FAULTS = {
    "kill": 4,
    "stop": 2,
    "full": 2,
    "unknown": 2,
    "crash_task": 4,
    "crash_decide": 3,
    "crash_evolve": 2,
    "wall": 3,
    "slow": 2,
    "crowd": 2,
    "refold": 4,
}
STATUSES = ("completed",) * 6 + ("failed",) * 4 + ("retry", "dead_letter")
PATIENCE = (None,) * 8 + (0.0, 0.0003, 0.004, 0.05, 1.0)
PAUSES = (0.0, 0.0, 0.0, 0.0005, 0.003, 0.05, 0.3, 1.0, 1.0, 3.0, 6.0)


class Step(NamedTuple):
    """One thing that a client does, `pause` seconds after the one before it. `number` is its name for good; a client
    without `patience` (seconds) waits until it is answered."""

    number: int
    client: int
    pause: float
    kind: str
    args: dict[str, Any]
    patience: float | None = None

    def __str__(self) -> str:
        given = " ".join(f"{name}={value}" for name, value in self.args.items())
        leaves = "" if self.patience is None else f" (goes away after {self.patience} s)"
        return f"step {self.number}: c{self.client} +{self.pause} s {self.kind} {given}{leaves}"


class Fault(NamedTuple):
    """Something that breaks, `at` seconds after the world began."""

    number: int
    at: float
    kind: str
    args: dict[str, Any]

    def __str__(self) -> str:
        given = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"fault {self.number}: at {self.at} s {self.kind} {given}"


class Plan(NamedTuple):
    """A whole world. `commit_s` is how long the disk takes for a commit, at most."""

    seed: int
    options: dict[str, dict[str, Any]]
    commit_s: float
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]

    @property
    def slack(self) -> int:
        """How late what is due may come, in µs: ticks take turns with other background work, one commit each."""
        slowest_s = max([self.commit_s, *(fault.args.get("commit_s", 0.0) for fault in self.faults)])
        return round((SLACK_S + COMMITS * slowest_s) * SECOND)

    @property
    def parts(self) -> tuple[Step | Fault, ...]:
        """Everything that can be taken out."""
        return (*self.steps, *self.faults)

    def only(self, parts: "list[Step | Fault]") -> "Plan":
        """The same world with these parts of it alone."""
        kept = set(map(id, parts))
        return self._replace(
            steps=tuple(step for step in self.steps if id(step) in kept),
            faults=tuple(fault for fault in self.faults if id(fault) in kept),
        )


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"plan {seed}")
    count = chance.randint(25, 80)
    faults = [_fault(chance, number) for number in range(chance.choice([0, 1, 2, 3, 3, 4]))]
    return Plan(
        seed,
        {queue: _options(chance) for queue in QUEUES},
        chance.choice([0.0, 0.0005, 0.004, 0.004, 0.05, 0.3]),
        tuple(_step(chance, number) for number in range(count)),
        tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _options(chance: random.Random) -> dict[str, Any]:
    drawn = {name: chance.choice(values) for name, values in OPTIONS.items()}
    theme = chance.choice(THEMES)
    if theme is None:
        return drawn
    plain = ("leaseTime", "retryLimit", "ordering", "priority", "dlqAfterMaxRetries")
    return {name: drawn[name] for name in plain} | theme


def _step(chance: random.Random, number: int) -> Step:
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    client = chance.randrange(CLIENTS)
    if number < 6:  # a world begins with something in it
        kind, client = "push", number % CLIENTS
    args = _ARGS[kind](chance) if kind in _ARGS else {}
    return Step(number, client, chance.choice(PAUSES), kind, args, chance.choice(PATIENCE))


def _items(chance: random.Random) -> list[tuple[str, str, str | None, int | None]]:
    """Queue, partition, transactionId and delay of each message of a push."""
    pool = chance.choice([40, 400])
    return [
        (
            chance.choice(QUEUES) if chance.random() < 0.3 else "a",
            chance.choice(PARTITIONS),
            f"t{chance.randrange(pool)}" if chance.random() < 0.6 else None,
            chance.choice([None, None, None, None, 0, 1, 4]),
        )
        for _ in range(chance.choice([1, 1, 1, 2, 3, 5]))
    ]


def _push(chance: random.Random) -> dict[str, Any]:
    return {"items": _items(chance), "again": chance.choice([0, 0, 0, 1, 2])}


def _pop(chance: random.Random) -> dict[str, Any]:
    scope: dict[str, Any] = {"queue": chance.choice(("a", "a", *QUEUES))}
    where = chance.random()
    if where < 0.2:
        scope["partition"] = chance.choice(PARTITIONS)
    elif where < 0.3:
        scope = chance.choice([{"namespace": "n"}, {"task": "t"}, {"namespace": "n", "task": "t"}])
    given: dict[str, Any] = {
        "scope": scope,
        "group": chance.choice(GROUPS),
        "batch": chance.choice([1, 1, 2, 5]),
        "partitions": chance.choice([1, 1, 1, 3]),
        "auto_ack": chance.random() < 0.1,
    }
    if chance.random() < 0.5:
        given |= {"wait": True, "timeout": chance.choice([0.0, 0.5, 3.0, 15.0])}
    if given["group"] == "h":
        given |= chance.choice([{}, {"subscription_mode": "new"}, {"ago": 2.0}, {"ago": -2.0}])
    return given


def _settle(chance: random.Random) -> dict[str, Any]:
    return {
        "which": chance.choice([0, 0, 0, 0, 1, 2, 5]),
        "statuses": [chance.choice(STATUSES) for _ in range(5)],
        "leased": chance.random() < 0.7,
        "some": chance.choice([5, 5, 5, 1, 2]),
        "batch": chance.random() < 0.5,
        "again": chance.random() < 0.2,
    }


def _transact(chance: random.Random) -> dict[str, Any]:
    return {"items": _items(chance), **_settle(chance)}


def _one(chance: random.Random) -> dict[str, Any]:
    return {"message": chance.randrange(1000), "group": chance.choice(GROUPS)}


_ARGS: dict[str, Any] = {
    "push": _push,
    "pop": _pop,
    "settle": _settle,
    "transact": _transact,
    "release": lambda chance: {"which": chance.choice([0, 0, 1])},
    "extend": lambda chance: {"which": chance.choice([0, 0, 1, 3]), "seconds": chance.choice([None, 1, 10, 30])},
    "retry": _one,
    "bury": _one,
    "delete": _one,
    "look": _one,
    "count": lambda chance: {"queue": chance.choice(QUEUES)},
    "seek": lambda chance: {
        "queue": chance.choice(QUEUES),
        "group": chance.choice(GROUPS),
        "ago": chance.choice([None, 0.5, 5.0, 1000.0]),
    },
    "configure": lambda chance: {
        "queue": chance.choice(QUEUES),
        "option": (name := chance.choice(list(OPTIONS))),
        "value": chance.choice(OPTIONS[name]),
    },
    "clear": lambda chance: {"queue": chance.choice(QUEUES), "partition": chance.choice([None, *PARTITIONS])},
    "delete_queue": lambda chance: {"queue": chance.choice(QUEUES)},
    "delete_group": lambda chance: {"group": chance.choice(["g", "h"])},
}


def _fault(chance: random.Random, number: int) -> Fault:
    kind = chance.choices(list(FAULTS), list(FAULTS.values()))[0]
    args: dict[str, Any] = {}
    if kind in ("kill", "stop", "unknown"):
        args = {"down": chance.choice([0.0, 0.5, 10.0]), "wall": chance.choice([0.0, 0.0, -30.0, 30.0])}
    if kind == "unknown":
        args["written"] = chance.random() < 0.5
    elif kind == "crash_task":
        names = (
            "partition",
            "partition",
            "queen.actors.router",
            "queen.actors.keeper",
            "queen.actors.eraser",
            "queen.actors.pulse",
        )
        args = {"task": chance.choice(names), "which": chance.randrange(100)}
    elif kind in ("crash_decide", "crash_evolve"):
        args = {"after": chance.randrange(4)}
    elif kind == "wall":
        args = {"by": chance.choice([-40.0, -1.0, 1.0, 40.0])}
    elif kind == "slow":
        args = {"commit_s": chance.choice([0.02, 0.2, 1.0]), "for": chance.choice([0.5, 5.0])}
    return Fault(number, round(chance.uniform(0, FINISH_S), chance.choice([0, 3, 6])), kind, args)
