"""The short forms of resources.py."""

from pathlib import Path

import pytest
import trio

from tests.campaigns.resources import PARTS
from tests.campaigns.resources_report import NotAllowed, Report


@pytest.mark.parametrize("part", PARTS)
async def test_resources_run_out_and_come_back(tmp_path: Path, part: str) -> None:
    """W2, W4, N1, P2."""
    report = Report()
    try:
        with trio.fail_after(240):
            await PARTS[part](tmp_path, True, report)
    except NotAllowed as error:
        pytest.skip(f"NOT TESTED WHAT HAPPENS WHEN A RESOURCE RUNS OUT ({part}): {error}")
    assert report.violations == []
