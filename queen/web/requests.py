"""The requests of one connection on the fast lane: what they ask, whether they may, and who asks."""

from queen.settings import Settings
from queen.web.access import Access
from queen.web.app import NEEDS
from queen.web.exchange import Answer, Asked, Callers
from queen.web.head import Head, read_head


class Requests:
    """See the module."""

    def __init__(self, settings: Settings, access: Access, callers: Callers, address: str) -> None:
        self._settings = settings
        self._access = access
        self._callers = callers
        self._address = address
        self._who = address

    def head(self, text: bytes) -> Head | None:
        """The head that `text` is, None where Hypercorn is to judge it."""
        settings = self._settings
        if not 0 < len(text) <= settings.max_header:
            return None
        head = read_head(text)
        # What is too large is Hypercorn's to refuse.
        if head is None or head.target_size > settings.max_target or head.length > settings.max_body:
            return None
        permit = self._access.identify(head.headers)
        # So is who may not ask.
        if isinstance(permit, Answer) or permit.refusal(NEEDS[head.route]) is not None:
            return None
        self._who = permit.who(self._address)
        return head

    def asked(self, head: Head, body: bytes) -> Asked:
        """The request, with a number of its own."""
        return Asked(head.method, head.names, head.query, head.headers, body, self._callers.new(self._who))
