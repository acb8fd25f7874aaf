"""How far a run is, read from the books while they are being written: who is finished, and whether anything moves."""

import time
from pathlib import Path

from shop.records import AckAnswered, AckSent, Fault, Leased, Library, Pushed, Record


class Progress:
    """`done`: every order was accepted and then acknowledged as completed, though some confirmations may be lost."""

    def __init__(self, books: Path, orders: int) -> None:
        self.records: list[tuple[str, Record]] = []
        self.faults: list[str] = []
        self._library = Library(books)
        self._orders = orders
        self._accepted: set[int] = set()
        self._completed: set[int] = set()
        self._perhaps: dict[int, str] = {}  # completions on their way, or without an answer: by which lease
        self._attempts: dict[tuple[str, int], str] = {}
        self._moved_at = time.monotonic()

    def look(self) -> None:
        """Read what is new."""
        for book, record in self._library.new():
            self.records.append((book, record))
            match record:
                case Pushed():
                    self._accepted.update(item.number for item in record.items)
                case Leased():
                    for message in record.messages:  # whatever was on its way did not happen
                        self._perhaps.pop(message.number, None)
                case AckSent():
                    self._attempts[book, record.attempt] = record.lease
                    for number, asked in record.status.items():
                        if asked == "completed":
                            self._perhaps[int(number)] = record.lease
                case AckAnswered():
                    lease = self._attempts.pop((book, record.attempt))
                    for result in record.results:
                        if result.status == "completed":
                            self._completed.add(result.number)
                        elif self._perhaps.get(result.number) == lease:
                            del self._perhaps[result.number]
                case Fault():
                    self.faults.append(record.what)
                case _:
                    continue  # lost answers and deaths: nothing has moved
            self._moved_at = time.monotonic()

    @property
    def done(self) -> bool:
        return len(self._accepted) == self._orders and len(self._completed | self._perhaps.keys()) == self._orders

    @property
    def quiet_s(self) -> float:
        """For how long nothing has moved."""
        return time.monotonic() - self._moved_at

    def __str__(self) -> str:
        return (
            f"{len(self._accepted)} of {self._orders} orders accepted, {len(self._completed)} completed, "
            f"{len(self._perhaps.keys() - self._completed)} perhaps"
        )
