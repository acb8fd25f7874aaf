"""One client that asks one thing after the other, and how long that took."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from bench import traffic
from bench.driver import drive, percentiles_ms
from bench.served import Queen

Times = dict[str, float | None]
"""Percentiles, see `percentiles_ms`, and the server's processor time for a request in ms."""

_ROUNDS: Final = 20


class Asking:
    """One request after the other; each must be answered with a 2xx. `body` is that of the last answer."""

    def __init__(self, requests: Iterable[bytes] = ()) -> None:
        self.connections = 1
        self.messages = 0
        self.requests: Iterator[bytes] = iter(requests)
        self.took: list[float] = []
        self.body = b""

    def next(self, connection: int, status: int, body: bytes, took: float) -> bytes | None:
        """See `Work`."""
        if status:
            if not 200 <= status < 300:
                raise SystemExit(f"answered {status}: {body[:300]!r}")
            self.took.append(took)
            self.body = body
        return next(self.requests, None)

    def run(self, server: Queen) -> Times:
        """Ask all; the percentiles of the times, and the mean of the server's processor time."""
        used = drive(server.port, self, seconds=3600, watched=server.pid)
        cpu_s = used["server_user_s"] + used["server_system_s"]
        return percentiles_ms(self.took) | {"cpu_ms": cpu_s * 1000 / len(self.took) if self.took else None}


def asked(server: Queen, requests: Iterable[bytes]) -> Times:
    """Percentiles of the times that these requests took."""
    return Asking(requests).run(server)


def times_of(server: Queen, routes: Iterable[str], named: Mapping[str, str] = MappingProxyType({})) -> dict[str, Times]:
    """For each route the percentiles of some requests, and the size of its answer in kB. What `named` holds are routes
    with long names, under shorter ones."""
    found = {}
    for name, route in ({route: route for route in routes} | {**named}).items():
        work = Asking([traffic.get(route)] * _ROUNDS)
        found[name] = work.run(server) | {"kb": len(work.body) / 1000}
    return found


def slowest(routes: dict[str, Times]) -> Times:
    """The longest of the medians, and the longest request of all."""
    return {name: max(times[name] or 0.0 for times in routes.values()) for name in ("p50_ms", "max_ms")}
