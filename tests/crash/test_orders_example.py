"""The small version of examples/orders.py: real traffic, a server killed again and again, no promise broken."""

from tests.crash.conftest import ShopRun


def test_orders_survive_a_server_that_is_killed_again_and_again(shop_run: ShopRun) -> None:
    """P1, P4, L1, L5, L7, O8, A3, A4, R1, Z3."""
    assert shop_run.done.returncode == 0, shop_run.done.stdout + shop_run.done.stderr
    assert "0 violations" in shop_run.done.stdout
