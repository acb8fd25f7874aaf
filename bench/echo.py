"""A server that only echoes: `python -m bench.echo ANSWERS PORT`. It shows how much the generator could drive.

It reads each request to its end and sends back the bytes that Queen once answered to one like it: the same traffic over
the same kernel, with next to no work in between. `ANSWERS` is a file of what `recorded` has found.
"""

import json
import re
import select
import socket
import sys
from pathlib import Path
from typing import Final

from bench import traffic

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PUSH, _POP, _BATCH, _ACK = b"POST /api/v1/push", b"GET /api/v1/pop", b"POST /api/v1/ack/batch", b"POST /api/v1/ack "
_OTHER: Final = b"HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n"


def recorded(port: int, work: str) -> dict[str, str]:
    """What Queen answers to the requests of a work, each by what such a request begins with."""
    size = {"W2": 100, "W3": 100, "W4": 10}.get(work, 1)
    popped = b""
    answers = {}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start in (_PUSH, _POP, _ACK if work == "W7" else _BATCH):
            if start == _PUSH:
                request = traffic.pushes(size)[0]
            elif start == _POP:
                request = traffic.get(f"{traffic.POP}?batch={size}")
            else:
                made = traffic.acknowledgement_of_one if start == _ACK else traffic.acknowledgement
                request = made(popped)
            connection.sendall(request)
            popped = _answer(connection)
            answers[start.decode()] = popped.decode()
    return answers


def _answer(connection: socket.socket) -> bytes:
    answer = b""
    while True:
        answer += connection.recv(1 << 18)
        end = answer.find(b"\r\n\r\n")
        if end >= 0:
            length = _LENGTH.search(answer, 0, end)
            if len(answer) == end + 4 + (int(length[1]) if length else 0):
                return answer


class Echo:
    """One epoll over all connections. Answers fit the socket's buffer, so sending does not have to be awaited."""

    def __init__(self, answers: dict[str, str], port: int) -> None:
        self._answers = [(start.encode(), answer.encode()) for start, answer in answers.items()]
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        self._parts: dict[int, bytes] = {}

    def run(self) -> None:
        """Serve until the process is ended."""
        listener = self._listener.fileno()
        while True:
            for number, _ in self._epoll.poll(-1, 1024):
                if number == listener:
                    self._accept()
                else:
                    self._serve(number)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[connection.fileno()] = connection
        self._parts[connection.fileno()] = b""
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _serve(self, number: int) -> None:
        connection = self._sockets[number]
        more = connection.recv(1 << 18)
        if not more:
            self._epoll.unregister(number)
            del self._sockets[number], self._parts[number]
            connection.close()
            return
        request = self._parts[number] + more
        end = request.find(b"\r\n\r\n")
        length = _LENGTH.search(request, 0, end) if end >= 0 else None
        if end < 0 or len(request) < end + 4 + (int(length[1]) if length else 0):
            self._parts[number] = request
            return
        self._parts[number] = b""
        for start, answer in self._answers:
            if request.startswith(start):
                connection.sendall(answer)
                return
        connection.sendall(_OTHER)


def main() -> None:
    """Serve."""
    answers, port = sys.argv[1:]
    Echo(json.loads(Path(answers).read_text()), int(port)).run()


if __name__ == "__main__":
    main()
