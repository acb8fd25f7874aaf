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
        self._perhaps: set[int] = set()
        self._moved_at = time.monotonic()

    def look(self) -> None:
        """Read what is new."""
        for book, record in self._library.new():
            self.records.append((book, record))
            match record:
                case Pushed():
                    self._accepted.update(item.number for item in record.items)
                case Leased():
                    self._perhaps.difference_update(message.number for message in record.messages)
                case AckSent():
                    self._perhaps.update(int(n) for n, asked in record.status.items() if asked == "completed")
                case AckAnswered():
                    self._completed.update(r.number for r in record.results if r.status == "completed")
                    self._perhaps.difference_update(r.number for r in record.results if r.status != "completed")
                case Fault():
                    self.faults.append(record.what)
                case _:
                    continue  # lost answers and deaths: nothing has moved
            self._moved_at = time.monotonic()

    @property
    def done(self) -> bool:
        return len(self._accepted) == self._orders and len(self._completed | self._perhaps) == self._orders

    @property
    def quiet_s(self) -> float:
        """For how long nothing has moved."""
        return time.monotonic() - self._moved_at

    def __str__(self) -> str:
        return (
            f"{len(self._accepted)} of {self._orders} orders accepted, {len(self._completed)} completed, "
            f"{len(self._perhaps - self._completed)} perhaps"
        )
