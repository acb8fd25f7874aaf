"""Clients of a simulated broker: each goes through its steps, and notes what it asks for and what it is told."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from queen import Acknowledgement, Broker, Caller, Delivery, Message, NewMessage
from queen.errors import QueenError
from queen.names import SECOND
from tests.sim.history import Attempt
from tests.sim.plan import Step

if TYPE_CHECKING:
    from tests.sim.world import World

Call = Callable[[Broker, Caller], Awaitable[Any]]


class Client:
    """One client. What was delivered to it, it keeps, also when it has settled it: acknowledgements may come late."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self._deliveries: list[Delivery] = []

    async def run(self, steps: list[Step]) -> None:
        """Go through the steps."""
        for step in steps:
            await trio.sleep(step.pause)
            await getattr(self, f"_{step.kind}")(step, **step.args)

    async def attempt(self, what: str, asked: dict[str, Any], call: Call, patience: float | None = None) -> Attempt:
        """Ask for something, and wait for the answer no longer than `patience` seconds."""
        life = await self._world.alive()
        attempt = self._world.begin(self.name, what, asked)
        scope = trio.CancelScope()
        if patience is not None:
            scope.deadline = trio.current_time() + patience
        life.clients[scope] = None
        try:
            with scope:
                attempt.result = await call(life.broker, Caller(self.name, attempt.request))
                attempt.outcome = "answered"
        except QueenError as error:
            attempt.outcome, attempt.error = "refused", error
        finally:
            del life.clients[scope]
        self._world.end(attempt)
        return attempt

    # -- the steps ------------------------------------------------------------------------------------------

    async def _push(self, step: Step, items: list[Any], again: int) -> None:
        for repeat in range(again + 1):
            messages = self._messages(items, f"{step.number}.{repeat}")
            await self.attempt(
                "push",
                {"items": messages},
                lambda broker, caller, messages=messages: broker.push_many(messages, caller=caller),  # type: ignore[misc]
                step.patience,
            )

    def _messages(self, items: list[Any], tag: str) -> list[NewMessage]:
        return [
            NewMessage(
                queue=queue,
                partition=partition,
                payload=f"{tag}.{index}",
                transaction_id=name,
                trace_id=f"{tag}.{index}",
                delay_seconds=delay,
                namespace="n",
                task="t",
            )
            for index, (queue, partition, name, delay) in enumerate(items)
        ]

    async def _pop(self, step: Step, **given: Any) -> None:
        await self.pop(step.patience, **given)

    async def pop(self, patience: float | None = None, **given: Any) -> Delivery:
        """Take messages; what comes is kept for later steps."""
        asked = dict(given)
        scope, ago = given.pop("scope"), given.pop("ago", None)
        if ago is not None:
            asked["from_at"] = given["subscription_from"] = self._world.shown() - int(ago * SECOND)

        async def call(broker: Broker, caller: Caller) -> Delivery:
            return await broker.pop(**scope, **given, worker=self.name, caller=caller)

        attempt = await self.attempt("pop", asked, call, patience)
        if not attempt.answered or not attempt.result:
            return Delivery()
        delivery: Delivery = attempt.result
        if not given.get("auto_ack"):
            self._deliveries.append(delivery)
        return delivery

    def _chosen(self, which: int) -> Delivery | None:
        return self._deliveries[-1 - which] if which < len(self._deliveries) else None

    def entries(self, which: int, statuses: list[Any], leased: bool, some: int) -> list[Acknowledgement]:
        """Acknowledgements of the first `some` messages of a delivery, the last but `which`."""
        delivery = self._chosen(which)
        return [
            Acknowledgement(
                transaction_id=message.transaction_id,
                status=status,
                lease_id=message.lease_id if leased else None,
                consumer_group=message.consumer_group,
                error="it failed" if status == "failed" else None,
            )
            for message, status in zip((delivery or Delivery()).messages[:some], statuses, strict=False)
        ]

    async def _settle(
        self, step: Step, which: int, statuses: list[Any], leased: bool, some: int, batch: bool, again: bool
    ) -> None:
        entries = self.entries(which, statuses, leased, some)
        for _ in range(1 + again):
            if batch and entries:
                await self.ack(entries, step.patience)
            elif not batch:
                for entry in entries:
                    await self.ack([entry], step.patience)

    async def ack(self, entries: list[Acknowledgement], patience: float | None = None) -> None:
        """Acknowledge, in one request."""
        await self.attempt(
            "ack", {"entries": entries}, lambda broker, caller: broker.ack_many(entries, caller=caller), patience
        )

    async def _transact(
        self, step: Step, items: list[Any], which: int, statuses: list[Any], leased: bool, some: int, **_: Any
    ) -> None:
        entries = self.entries(which, statuses, leased, some)
        messages = self._messages(items, f"{step.number}.0")
        operations: list[Any] = [*entries, messages]
        await self.attempt(
            "transact",
            {"items": messages, "entries": entries},
            lambda broker, caller: broker.transaction(operations, caller=caller),
            step.patience,
        )

    async def _release(self, step: Step, which: int) -> None:
        delivery = self._chosen(which)
        if delivery is not None:
            life = await self._world.alive()
            for lease in {message.lease_id for message in delivery}:
                self._world.history.released.setdefault(lease, self._world.stamp())
            life.broker.release_nowait(delivery)

    async def _extend(self, step: Step, which: int, seconds: int | None) -> None:
        delivery = self._chosen(which)
        if delivery is not None:
            lease = delivery.messages[0].lease_id
            await self.attempt(
                "extend",
                {"lease": lease, "seconds": seconds},
                lambda broker, caller: broker.extend(lease, seconds, caller=caller),
                step.patience,
            )

    async def _operate(self, what: str, step: Step, message: int, group: str | None, call: Any) -> Attempt | None:
        name = self._world.name_of(message, failed=what in ("retry", "bury"))
        if name is None:
            return None
        return await self.attempt(
            what,
            {"name": name, "group": group},
            lambda broker, caller: call(broker, name, group, caller),
            step.patience,
        )

    async def _retry(self, step: Step, message: int, group: str | None) -> None:
        await self._operate(
            "retry", step, message, group, lambda b, name, g, caller: b.messages.retry(name, group=g, caller=caller)
        )

    async def _bury(self, step: Step, message: int, group: str | None) -> None:
        await self._operate(
            "bury", step, message, group, lambda b, name, g, caller: b.messages.bury(name, group=g, caller=caller)
        )

    async def _delete(self, step: Step, message: int, group: str | None) -> None:
        for _ in range(2):  # without an answer, once more
            attempt = await self._operate(
                "delete", step, message, None, lambda b, name, g, caller: b.messages.delete(name, caller=caller)
            )
            if attempt is None or attempt.outcome != "unknown":
                return

    async def _look(self, step: Step, message: int, group: str | None) -> None:
        await self._operate("look", step, message, None, lambda b, name, g, caller: b.messages.get(name))

    async def _count(self, step: Step, queue: str) -> None:
        await self.attempt(
            "count", {"queue": queue}, lambda broker, caller: broker.statistics.queue(queue), step.patience
        )

    async def _seek(self, step: Step, queue: str, group: str | None, ago: float | None) -> None:
        to = None if ago is None else self._world.shown() - int(ago * SECOND)
        await self.attempt(
            "seek",
            {"queue": queue, "group": group, "to": to},
            lambda broker, caller: broker.groups.seek(group, queue, to, caller=caller),
            step.patience,
        )

    async def _configure(self, step: Step, queue: str, option: str, value: Any) -> None:
        await self.configure(queue, {option: value}, step.patience)

    async def configure(self, queue: str, options: dict[str, Any], patience: float | None = None, **more: Any) -> None:
        """Change a queue."""
        await self.attempt(
            "configure",
            {"queue": queue, "options": options},
            lambda broker, caller: broker.configure(queue, options, **more, caller=caller),
            patience,
        )

    async def _clear(self, step: Step, queue: str, partition: str | None) -> None:
        await self.attempt(
            "clear",
            {"queue": queue, "partition": partition},
            lambda broker, caller: broker.messages.clear(queue, partition, caller=caller),
            step.patience,
        )

    async def _delete_queue(self, step: Step, queue: str) -> None:
        for _ in range(2):  # without an answer, once more
            attempt = await self.attempt(
                "delete_queue",
                {"queue": queue},
                lambda broker, caller: broker.delete_queue(queue, caller=caller),
                step.patience,
            )
            if attempt.outcome != "unknown":
                return

    async def _delete_group(self, step: Step, group: str) -> None:
        await self.attempt(
            "delete_group",
            {"group": group},
            lambda broker, caller: broker.groups.delete(group, caller=caller),
            step.patience,
        )

    async def _compact(self, step: Step) -> None:
        await self.attempt("compact", {}, lambda broker, caller: broker.compact(), step.patience)


def payload_of(message: Message) -> Any:
    """What a delivered message says."""
    return msgspec.json.decode(message.payload)
