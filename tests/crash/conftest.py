"""One run of the small shop for all tests that look at what came of it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/orders.py"


class ShopRun(NamedTuple):
    """How the example ended, and the folder with its data and the clients' books."""

    done: "subprocess.CompletedProcess[str]"
    folder: Path


@pytest.fixture(scope="session")
def shop_run(tmp_path_factory: pytest.TempPathFactory) -> ShopRun:
    folder = tmp_path_factory.mktemp("shop")
    command = [sys.executable, str(EXAMPLE), "--small", "--keep", str(folder)]
    return ShopRun(subprocess.run(command, capture_output=True, text=True, timeout=300), folder)
