"""The examples of docs/embedding.md run as a reader would run them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pipeline_that_is_killed_invoices_each_order_once() -> None:
    assert "2000 orders, 2000 invoices, each once and in order" in _run("examples/pipeline.py", "--kills", "2")


def test_the_tests_of_a_program_with_a_queue_inside() -> None:
    assert "3 passed" in _run("-m", "pytest", "-q", "examples/signup", "-p", "no:cacheprovider")


def test_a_web_service_hands_its_work_to_consumers_in_the_same_process(tmp_path: Path) -> None:
    service = subprocess.Popen(
        [sys.executable, "examples/web_service.py", "--data", str(tmp_path / "data"), "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert service.stdout is not None
        url = json.loads(service.stdout.readline())["listening"] + "/mails"
        for address in ("ada@example.org", "nobody", "bob@example.org"):
            with urlopen(Request(url, json.dumps({"to": address}).encode())) as answer:
                assert answer.status == 202
        wanted = {"sent": 2, "waiting": 0, "given up": 1}
        seen: dict[str, Any] = {}
        for _ in range(200):
            with urlopen(url) as answer:
                seen = json.load(answer)
            if seen == wanted:
                break
            time.sleep(0.05)
        assert seen == wanted
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=30)
    assert service.returncode == 0


def test_the_first_program_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "embedding.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (0, "ada@example.org\n"), done.stderr
