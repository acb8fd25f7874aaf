"""The clients of crash.py: they push, take, settle, extend, transact; each writes down what it sees.

Each producer, and each consumer that transacts, has partitions that nobody else pushes to, and there is at most one
request under way for any of them. So the order of a partition's messages is that of their numbers.
"""

import random
import time
from collections import Counter
from typing import Any, Final, NamedTuple

import trio

from tests.campaigns.crash_history import LEASE_S, Ack, Extend, Got, History, Item, Pop, Push, Pushed, Settled
from tests.campaigns.served import Client, Lost

QUEUES: Final = {"strict": "strict", "relaxed": "relaxed", "steps": "strict", "after": "strict", "auto": "strict"}
"""Their ordering. `steps` is consumed by transactions, which push to `after`; `auto` by autoAck."""
GROUPS: Final[dict[str, tuple[str | None, ...]]] = {
    "strict": (None, "audit"),
    "relaxed": (None, "audit"),
    "steps": (None,),
    "after": (None, "audit"),
    "auto": (None,),
}
BACKLOG: Final = 4_000
"""Messages that wait for a consumer at most: a producer stops before that."""

now = time.monotonic


class Role(NamedTuple):
    """A kind of consumer: its queue, its group, and what it does."""

    queue: str
    group: str | None
    auto: bool = False
    transacts: bool = False


ROLES: Final = (
    *[Role("strict", None)] * 3,
    *[Role("strict", "audit")] * 2,
    *[Role("relaxed", None)] * 3,
    *[Role("relaxed", "audit")] * 2,
    *[Role("steps", None, transacts=True)] * 3,
    *[Role("after", None)] * 2,
    Role("after", "audit"),
    *[Role("auto", None, auto=True)] * 2,
)


class Load:
    """All clients together. `stop_pushing` and `calm` lead to the end: no new work, then nothing that fails."""

    def __init__(self, port: int, seed: int, producers: int) -> None:
        self.history = History()
        self.pushing = True
        self.calm = False
        self._port = port
        self._seed = seed
        self._producers = producers
        self._waiting: Counter[str] = Counter()
        self._clients: list[Client] = []

    async def run(self, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        await self._configure()
        try:
            async with trio.open_nursery() as nursery:
                for number in range(self._producers):
                    nursery.start_soon(self._produce, f"p{number}")
                for number, role in enumerate(ROLES):
                    nursery.start_soon(self._consume, f"c{number}", role)
                task_status.started()
        finally:
            for client in self._clients:
                client.close()

    def _client(self) -> Client:
        self._clients.append(Client(self._port))
        return self._clients[-1]

    async def _configure(self) -> None:
        client = self._client()
        for queue, ordering in QUEUES.items():
            options = {"leaseTime": LEASE_S, "retryLimit": 1_000_000, "ordering": ordering}
            status, answer = await client.request("POST", "/api/v1/configure", {"queue": queue, "options": options})
            assert status == 200, answer

    # -- pushing ------------------------------------------------------------------------------------------

    async def _produce(self, name: str) -> None:
        chance = random.Random(f"{self._seed} {name}")
        client = self._client()
        numbers = iter(range(10**9))
        while self.pushing:
            if sum(self._waiting.values()) > BACKLOG:
                await trio.sleep(0.02)
                continue
            items = []
            for _ in range(chance.choice((1, 1, 5, 20, 60))):
                queue = chance.choice(("strict", "relaxed", "steps", "auto"))
                number = next(numbers)
                items.append(Item(f"{name}-{number}", queue, f"{name}-{chance.randrange(6)}", number))
            push = Push(now(), items, again=False)
            # One that got no answer is sent again until it has one, or left as it is.
            while not await self._push(client, push) and chance.random() < 0.7:
                push = Push(now(), items, again=True)
            if chance.random() < 0.03:
                await self._push(client, Push(now(), items, again=True))

    async def _push(self, client: Client, push: Push) -> bool:
        self.history.pushes.append(push)
        body = {"items": [_item(item) for item in push.items]}
        answer = await self._ask(client, push, "POST", "/api/v1/push", body, 201)
        if answer is None:
            return False
        push.answers = [Pushed(each["id"], each["status"]) for each in answer["messages"]]
        for item, each in zip(push.items, push.answers, strict=True):
            self._waiting[item.queue] += each.status == "queued"
        return True

    # -- consuming ----------------------------------------------------------------------------------------

    async def _consume(self, name: str, role: Role) -> None:
        chance = random.Random(f"{self._seed} {name}")
        client = self._client()
        numbers = iter(range(10**9))
        while True:
            pop = await self._pop(client, role, chance)
            if role.auto or not pop.messages:
                continue
            if not self.calm:
                if chance.random() < 0.05:
                    continue  # forgotten: the lease has to end by itself
                if chance.random() < 0.1:
                    await self._extend(client, pop)
                if chance.random() < 0.02:
                    await trio.sleep(LEASE_S * chance.uniform(0.9, 1.2))
            await self._settle(client, role, pop, chance, name, numbers)

    async def _pop(self, client: Client, role: Role, chance: random.Random) -> Pop:
        pop = Pop(now(), role.queue, role.group, chance.choice((1, 5, 20, 50)), role.auto)
        self.history.pops.append(pop)
        path = f"/api/v1/pop/queue/{role.queue}?batch={pop.batch}&wait=true&timeout=500"
        path += "&autoAck=true" if role.auto else ""
        path += f"&consumerGroup={role.group}" if role.group else ""
        answer = await self._ask(client, pop, "GET", path, None, 200, 204)
        pop.answered = answer is not None
        if answer:
            taken = answer["messages"]
            pop.partition, pop.lease = taken[0]["partition"], taken[0]["leaseId"] or ""
            pop.messages = [Got(m["transactionId"], m["id"], m["data"], m["retryCount"]) for m in taken]
            if role.auto:
                self._waiting[role.queue] -= len(taken)
        return pop

    async def _extend(self, client: Client, pop: Pop) -> None:
        extend = Extend(now(), pop.lease, LEASE_S + 1)
        self.history.extends.append(extend)
        path = f"/api/v1/lease/{pop.lease}/extend"
        # The lease may have ended meanwhile, where the answer of the pop was slow.
        answer = await self._ask(client, extend, "POST", path, {"seconds": LEASE_S + 1}, 200, 404)
        extend.answered = bool(answer and answer.get("extended"))

    async def _settle(
        self, client: Client, role: Role, pop: Pop, chance: random.Random, name: str, numbers: Any
    ) -> None:
        """All messages of a lease, in one request or several; what is given back goes last, it is delivered anew."""
        left = list(pop.messages)
        while left:
            some = left[: chance.choice((1, len(left), len(left), len(left)))]
            left = left[len(some) :]
            asked = {got.name: "completed" for got in some}
            if not self.calm and not role.transacts and chance.random() < 0.1:
                asked[some[-1].name] = chance.choice(("failed", "retry"))
            while True:
                ack = Ack(now(), pop.lease, asked)
                self.history.acks.append(ack)
                if role.transacts:
                    items = [Item(f"{name}-{(n := next(numbers))}", "after", name, n) for _ in range(2)]
                    ack.with_push = Push(ack.sent, items, again=False)
                    done = await self._transact(client, role, ack)
                else:
                    done = await self._ack(client, role, ack)
                if done:
                    break
                if chance.random() < 0.3 or role.transacts:
                    return  # nobody knows what became of it, and nobody asks
            if "failed" in asked.values() or "retry" in asked.values():
                return

    async def _ack(self, client: Client, role: Role, ack: Ack) -> bool:
        entries = [_entry(name, status, ack.lease, role.group) for name, status in ack.asked.items()]
        if len(entries) == 1:
            answer = await self._ask(client, ack, "POST", "/api/v1/ack", entries[0], 200, 409)
            results = [answer if answer and "status" in answer else {"status": "conflict"}]
        else:
            answer = await self._ask(client, ack, "POST", "/api/v1/ack/batch", {"acknowledgments": entries}, 200)
            results = answer["results"] if answer else []
        if answer is None:
            return False
        self._settled(role, ack, results)
        return True

    async def _transact(self, client: Client, role: Role, ack: Ack) -> bool:
        assert ack.with_push is not None
        self.history.pushes.append(ack.with_push)
        entries = [_entry(name, status, ack.lease, role.group) for name, status in ack.asked.items()]
        push = {"type": "push", "items": [_item(item) for item in ack.with_push.items]}
        body = {"operations": [*({"type": "ack"} | entry for entry in entries), push]}
        answer = await self._ask(client, ack, "POST", "/api/v1/transaction", body, 200)
        ack.with_push.at = ack.at
        if answer is None:
            return False
        if not answer["success"]:
            # One of them is refused, and so none is done.
            self._settled(role, ack, [{"status": answer["reason"]}] * len(entries))
            ack.with_push.stored = [False] * len(ack.with_push.items)
            return True
        self._settled(role, ack, answer["results"][:-1])
        ack.with_push.answers = [Pushed(each["id"], each["status"]) for each in answer["results"][-1]["messages"]]
        self._waiting["after"] += len(ack.with_push.items)
        return True

    def _settled(self, role: Role, ack: Ack, results: list[dict[str, Any]]) -> None:
        ack.results = {
            name: Settled(result["status"], result.get("retryCount", 0))
            for name, result in zip(ack.asked, results, strict=True)
        }
        if role.group is None:
            self._waiting[role.queue] -= sum(each.status == "completed" for each in ack.results.values())

    # -- asking -------------------------------------------------------------------------------------------

    async def _ask(self, client: Client, record: Any, method: str, path: str, body: Any, *statuses: int) -> Any:
        """The answer, {} for none in it; None where there was none. Notes in `record` when; a status that no healthy
        server answers is a fault."""
        try:
            status, answer = await client.request(method, path, body)
        except (Lost, OSError):
            record.at = now()
            return None
        record.at = now()
        if status not in statuses:
            self.history.faults.append(f"{method} {path} answered {status}: {answer}")
            return None
        return answer or {}


def _item(item: Item) -> dict[str, Any]:
    return {"queue": item.queue, "partition": item.partition, "payload": item.number, "transactionId": item.name}


def _entry(name: str, status: str, lease: str, group: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"transactionId": name, "status": status, "leaseId": lease}
    return entry | ({"consumerGroup": group} if group else {})
