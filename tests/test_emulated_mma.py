"""The emulated block-scaled MMA (kernels/emulated/mma.cuh), run on the host against a float64 model of the instruction.

tests/emulated_mma.cpp holds the model: every pair of e2m1 (and e4m3) codes at every k, every pair of scale codes in
every block, sums that float32 holds exactly, and a wide range within two ulps.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from fake_toolchain import ROOT

SOURCE = ROOT / "tests" / "emulated_mma.cpp"
PLANTS = re.search(r"PLANTS\[\] = \{(.*?)\};", SOURCE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mma") / "emulated_mma"
    subprocess.run(["g++", "-std=c++17", "-O2", "-Wall", "-Werror", str(SOURCE), "-o", str(out)], check=True)
    return out


def _run(binary: Path, *arguments: str) -> tuple[int, dict[str, tuple[int, int, float]]]:
    done = subprocess.run([str(binary), *arguments], capture_output=True, text=True, timeout=120)
    rows = (line.split() for line in done.stdout.splitlines())
    return done.returncode, {name: (int(cases), int(bad), float(ulps)) for name, cases, bad, ulps in rows}


def test_no_bit_differs_where_float32_is_exact(binary: Path) -> None:
    status, rows = _run(binary)
    assert status == 0 and len(rows) == 20
    for name, (cases, mismatches, ulps) in rows.items():
        assert cases >= 8192 and mismatches == 0, name
        assert ulps == 0 or name.endswith(".wide") and ulps <= 2, name


@pytest.mark.parametrize("plant", re.findall(r'"(\w+)"', PLANTS[1]) if PLANTS else ["the list of plants"])
def test_a_planted_fault_is_noticed(binary: Path, plant: str) -> None:
    status, rows = _run(binary, "--plant", plant)
    assert status == 1 and any(mismatches for _, mismatches, _ in rows.values())
