"""The replay of searches on recorded sweeps, as the benchmark does it, with few seeds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from fake_toolchain import ROOT


def test_the_default_search_is_near_the_best_after_15_percent_of_the_sweep(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "search_quality.py"), "--seeds", "3", "--json", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    figures = json.loads(file.read_text())
    assert {each["order"] for each in figures} == {"random", "model", "tpe", "tileforge"} and len(figures) == 4 * 20

    def share(order: str) -> float:
        found = [each for each in figures if each["order"] == order]
        return statistics.median((n or float("inf")) / each["tactics"] for each in found for n in each["needed"])

    assert share("tileforge") <= 0.15 and share("tileforge") < share("tpe") < share("random"), said
    held = next(line for line in said.splitlines() if "top 8" in line)
    assert int(held.split(" in ")[1].split()[0]) >= 0.9 * 20, held
    for order in ("random", "tpe", "tileforge"):
        after_10, _, after_40 = (
            statistics.fmean(regret[i] for each in figures if each["order"] == order for regret in each["regrets"])
            for i in range(3)
        )
        assert 0 <= after_40 <= after_10 < 0.1, order
