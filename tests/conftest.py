"""What every test gets: a database of its own, and a clear failure where a GPU test has no GPU."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the checkout's or the user's database."""
    monkeypatch.setenv("TILEFORGE_DB", str(tmp_path / "tuning_db"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


def pytest_configure() -> None:
    """Ctrl-C means Ctrl-C in the tests about it, also where this run was started in the background, ignoring it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    try:
        import torch
    except ImportError:
        pytest.fail("a GPU test was asked for and torch is not installed", pytrace=False)
    if not torch.cuda.is_available():
        pytest.fail("a GPU test was asked for and there is no GPU", pytrace=False)
