"""The layout of scale factors, byte for byte, against CUTLASS's own layout functions on the host, both versions."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tileforge.errors import ToolchainError
from tileforge.toolchain import cutlass_of, find_compiler

torch = pytest.importorskip("torch")
from tileforge.measure.quantize import scale_starts, swizzle, swizzle_groups, swizzle_rows  # noqa: E402

SOURCE = Path(__file__).with_name("scale_layouts.cu")
RAGGED = (5, 0, 64, 1, 128, 17, 33, 200)
ROUTINGS = (RAGGED, (1,) * 40, (0, 65, 0, 129, 0), (128, 256), (0, 3))
DEPTHS = (64, 96, 128, 1504, 2880)
Ask = Callable[[list[tuple[str, int, int, int]]], list[list[int]]]


@pytest.fixture(scope="module", params=["4.2.0", "4.5.0"])
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    try:
        cutlass, compiler = cutlass_of(request.param), find_compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
    program = tmp_path_factory.mktemp("layouts") / "layouts"
    command = ["-std=c++17", "-O1", "--expt-relaxed-constexpr", f"-I{cutlass.include}", str(SOURCE), "-o", str(program)]
    subprocess.run(compiler.command(command), check=True, env={**os.environ, **compiler.env})

    def answers(questions: list[tuple[str, int, int, int]]) -> list[list[int]]:
        text = "\n".join(" ".join(map(str, question)) for question in questions)
        said = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True).stdout
        found = [[int(number) for number in line.split()] for line in said.splitlines()]
        assert len(found) == len(questions)
        return found

    return answers


def scales(rows: int, k: int, vector: int) -> torch.Tensor:
    """Neighbours unlike, none 0: what padding holds."""
    columns = -(-k // vector)
    generator = torch.Generator().manual_seed(rows * 7919 + k)
    return torch.randint(1, 256, (rows, columns), generator=generator, dtype=torch.uint8)


def scatter(plain: torch.Tensor, places: Sequence[int], room: int) -> torch.Tensor:
    laid = torch.zeros(room, dtype=torch.uint8)
    laid[torch.tensor(places, dtype=torch.long)] = plain.flatten()
    return laid


def by_cutlass(ask: Ask, plain: torch.Tensor, sizes: Sequence[int], k: int, vector: int, shift: int) -> torch.Tensor:
    """A's scales, each group as CUTLASS lays it out; with ``shift`` 127 groups start where kernels/groups.cuh says."""
    columns = -(-k // (4 * vector)) * 4
    used = [size for size in sizes if size]
    answers = iter(ask([("A", vector, size, k) for size in used]))
    laid = torch.zeros(scale_starts(sizes)[-1] * columns, dtype=torch.uint8)
    first = 0
    for group, size in enumerate(sizes):
        if size:
            _, *places = next(answers)
            base = (first + shift * group) // 128 * 128 * columns
            laid[base + torch.tensor(places)] = plain[first : first + size].flatten()
        first += size
    return laid


@pytest.mark.parametrize("vector", [16, 32])
def test_rows_by_groups_are_where_cutlass_reads_them(ask: Ask, vector: int) -> None:
    for sizes, k in itertools.product(ROUTINGS, DEPTHS):
        plain = scales(sum(sizes), k, vector)
        assert torch.equal(swizzle_rows(plain, sizes), by_cutlass(ask, plain, sizes, k, vector, 127)), (sizes, k)


@pytest.mark.parametrize("vector", [16, 32])
def test_weights_of_all_groups_are_where_cutlass_reads_them(ask: Ask, vector: int) -> None:
    for n, k in itertools.product((8, 128, 136, 200, 256), DEPTHS):
        plain = scales(3 * n, k, vector)
        room, *places = ask([("B", vector, n, k)])[0]
        assert room == -(-n // 128) * 128 * -(-k // (4 * vector)) * 4
        laid = torch.cat([scatter(plain[g * n : (g + 1) * n], places, room) for g in range(3)])
        assert torch.equal(swizzle_groups(plain, 3), laid), (n, k)


def test_the_comparison_notices_other_layouts(ask: Ask) -> None:
    k, vector = 512, 16
    plain = scales(sum(RAGGED), k, vector)
    right = by_cutlass(ask, plain, RAGGED, k, vector, 127)
    assert not torch.equal(swizzle_rows(plain.roll(1, 0), RAGGED), right)
    assert not torch.equal(swizzle_rows(plain.roll(1, 1), RAGGED), right)
    assert not torch.equal(swizzle_rows(plain, RAGGED[::-1]), right)
    one = scales(200, k, vector)
    room, *places = ask([("A", vector, 200, k)])[0]
    assert torch.equal(swizzle(one), scatter(one, places, room))
    assert not torch.equal(torch.nn.functional.pad(one, (0, 0, 0, 56)).flatten(), scatter(one, places, room))
    assert ask([("A", 32, 200, k)])[0] != [room, *places]
    # Groups that start where the rows before them end, not 127 a group further, run into each other.
    assert not torch.equal(by_cutlass(ask, plain, RAGGED, k, vector, 0), right)
