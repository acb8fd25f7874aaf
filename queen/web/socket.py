"""One WebSocket on the wire: Hypercorn's, with what it lacks: a limit in bytes, no compression, pings that look for an
answer, refusals with a body, and an end that always reaches the application.
"""

from typing import Any, Final

import h11
import trio
from hypercorn.protocol.events import Body, Data, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from queen.web.exchange import CLOSE, CORS, refusal

_SENTENCES: Final = {
    400: "not a valid WebSocket handshake",
    403: "the WebSocket was refused",
    500: "internal error; the server's log has the details",
}


def asks_for_socket(request: h11.Request) -> bool:
    """Whether the request wants to become a WebSocket."""
    tokens: list[bytes] = []
    upgrade = b""
    for name, value in request.headers:
        if name == b"connection":
            tokens += [token.strip() for token in value.lower().split(b",")]
        elif name == b"upgrade":
            upgrade = value.strip().lower()
    return request.method == b"GET" and upgrade == b"websocket" and b"upgrade" in tokens


def text_frame(text: bytes) -> bytes:
    """A whole text message as the frame that a server sends (RFC 6455, 5.2): the same for every client."""
    size = len(text)
    if size < 126:
        return bytes((0x81, size)) + text
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2) + text
    return b"\x81\x7f" + size.to_bytes(8) + text


class Socket(WSStream):
    """See the module. `config.websocket_ping_interval` is in seconds, `websocket_max_message_size` in bytes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pinging = trio.CancelScope()
        self._heard = True
        self._received = 0
        self._answered = False

    async def handle(self, event: StreamEvent) -> None:
        """What the connection brings."""
        if isinstance(event, Body | Data) and not self.handshake.accepted:
            await self._refuse_early()
            return
        if isinstance(event, Data):
            self._heard = True
        await super().handle(event)
        if isinstance(event, StreamClosed):
            self._pinging.cancel()
        elif isinstance(event, Request) and self.closed:
            # Refused by Hypercorn, which would leave the connection open.
            await self.send(StreamClosed(stream_id=self.stream_id))

    async def _refuse_early(self) -> None:
        """The client has spoken before the handshake was answered, or goes on after it was refused."""
        if self.closed or self._answered:
            return
        # First of all: the application may answer at this very moment, and two answers are none.
        self.closed = True
        await self._send_error_response(400)
        if self.app_put is not None:
            await self.app_put({"type": "websocket.disconnect", "code": CloseReason.PROTOCOL_ERROR})
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def app_send(self, message: Any) -> None:
        """What the application says. Always lets others run: a loop that sends to a client that has left must not
        hold the server up."""
        await trio.lowlevel.checkpoint()
        await super().app_send(message)
        if message is None:
            self._pinging.cancel()

    async def send_frames(self, data: bytes) -> None:
        """Frames that need nothing more. Always lets others run, as `app_send` does."""
        await trio.lowlevel.checkpoint()
        if self.state is ASGIWebsocketState.CONNECTED and self.connection.state is ConnectionState.OPEN:
            await self.send(Data(stream_id=self.stream_id, data=data))

    async def _accept(self, message: Any) -> None:
        # A small compressed frame can unpack to hundreds of megabytes.
        self.handshake.extensions = None
        self.scope["state"]["socket"] = self  # for whoever has frames, see `send_frames`
        await super()._accept(message)

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                text = isinstance(event, TextMessage)
                self._received += len(event.data.encode()) if text else len(event.data)
                if self._received > self.config.websocket_max_message_size:
                    await self._fail(CloseReason.MESSAGE_TOO_BIG)
                    return
                self.buffer.extend(event)
                if event.message_finished:
                    await self.app_put(self.buffer.to_message())  # type: ignore[misc]  # set by the handshake
                    self.buffer.clear()
                    self._received = 0
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                if self.connection.state == ConnectionState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                elif self.connection.state == ConnectionState.OPEN:
                    await self._fail(event.code)  # what came in is no WebSocket frame
                    return
                await self.send(StreamClosed(stream_id=self.stream_id))
                return

    async def _fail(self, code: int) -> None:
        """Close, saying why, and let the application end; it ends the connection."""
        await self._send_wsproto_event(CloseConnection(code=code))
        self.state = ASGIWebsocketState.CLOSED
        await self.app_put({"type": "websocket.disconnect", "code": int(code)})  # type: ignore[misc]

    async def _send_rejection(self, message: Any) -> None:
        self._answered = True
        await super()._send_rejection(message)

    async def _send_error_response(self, status_code: int) -> None:
        self._answered = True
        answer = refusal(status_code, _SENTENCES.get(status_code, "the WebSocket was refused"))
        headers = [*answer.fields(), *CORS, CLOSE]
        await self.send(Response(stream_id=self.stream_id, status_code=status_code, headers=headers))
        await self.send(Body(stream_id=self.stream_id, data=answer.body))
        await self.send(EndBody(stream_id=self.stream_id))

    async def _send_pings(self) -> None:
        interval = self.config.websocket_ping_interval
        assert interval is not None
        with self._pinging:
            while self._heard:
                await trio.sleep(interval)
                if self._heard:
                    self._heard = False
                    await self._send_wsproto_event(Ping())
                    await trio.sleep(interval)
        if not self._pinging.cancelled_caught:
            await self.send(StreamClosed(stream_id=self.stream_id))
