"""What a subscriber of the feed was told, against the journal: in commit order, all of it, and nothing before its commit
(W1)."""

from tests.sim.history import History
from tests.sim.ledger import Ledger


def follows(history: History, ledger: Ledger) -> None:
    """Raise where it does not."""
