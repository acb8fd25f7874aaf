"""The small version of examples/orders.py: real traffic, a server killed again and again, no promise broken."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/orders.py"


def test_orders_survive_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """P1, P4, L1, L5, L7, O8, A3, A4, R1, Z3."""
    command = [sys.executable, str(EXAMPLE), "--small", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 violations" in done.stdout
