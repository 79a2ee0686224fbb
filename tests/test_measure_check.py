"""The check against pretend kernels on the CPU, right and wrong in every way that has reached serving."""

from __future__ import annotations

import math
import re

import pytest

torch = pytest.importorskip("torch")

from tileforge.formats import FORMATS  # noqa: E402
from tileforge.measure.check import Checked, check, tolerance  # noqa: E402
from tileforge.measure.host import pretend  # noqa: E402
from tileforge.measure.inputs import (  # noqa: E402
    GUARD_ROWS,
    PLACES,
    Inputs,
    Output,
    make_inputs,
    operand_bytes,
    set_count,
    working_bytes,
)
from tileforge.measure.quantize import dequantize  # noqa: E402
from tileforge.measure.reference import reference  # noqa: E402
from tileforge.problem import GroupedGemm  # noqa: E402

CPU = torch.device("cpu")
RAGGED = "rows:0,65,129,3,0"  # cases P1 and P2: first and last empty, one row over half a tile, one over a tile


def problem_of(routing: str = RAGGED, format: str = "bf16", out: str = "bf16", n: int = 64) -> GroupedGemm:
    rows = [int(part) for part in routing[5:].split(",")]
    return GroupedGemm(sum(rows), n, 256, len(rows), format, out, routing)


def judge(inputs: Inputs, bug: str = "", index: int = 0) -> Checked:
    inputs.sets[index].output.poison()
    pretend(inputs, index, bug)
    return check(inputs.sets[index].output, reference(inputs), inputs.sizes, tolerance(inputs.problem))


@pytest.mark.parametrize("out", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_right_kernel_passes_and_its_error_is_the_rounding(format: str, out: str) -> None:
    problem = problem_of(format=format, out=out)
    checked = judge(make_inputs(problem, CPU))
    assert checked.ok, checked.message
    assert checked.error is not None
    rounding = {"bf16": 2**-8, "fp16": 2**-11, "fp32": 2**-24}[out]
    # Rounding errors are uniform within half a unit: 0.3 to 0.6 of the unit roundoff in the 2-norm.
    assert 0.2 * rounding < checked.error < 0.7 * rounding + 2e-6
    assert checked.error < tolerance(problem).group


WRONG = {
    "zeros": r"group 1: row 64 of 65 zero \(and in 1 more group\)",  # case P2
    "nan": r"group 3: row 2 of 3 NaN or infinite",  # case M5
    "unwritten": r"group 3: row 2 of 3 not written",
    "guard": r"wrote outside the output: 1 rows after it",
    "alpha": r"group \d: relative error",
    "neighbour": r"group \d: relative error",
    "element": r"group 3: row 2 of 3 off by|group 3: relative error",
}


@pytest.mark.parametrize("format", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("bug", WRONG)
def test_a_wrong_kernel_is_named_M5_P2(bug: str, format: str) -> None:
    checked = judge(make_inputs(problem_of(format=format), CPU), bug)
    assert not checked.ok
    assert re.match(WRONG[bug], checked.message), checked.message
    assert checked.error is None or math.isfinite(checked.error)


def test_a_zero_band_is_described_with_its_rows_P2() -> None:
    inputs = make_inputs(problem_of("rows:0,129,130"), CPU)
    assert judge(inputs, "zeros").message == "group 1: rows 64..127 of 129 zero (and in 1 more group)"


def test_one_wrong_element_among_many_rows_is_found() -> None:
    """A group's norm hides one element of 100,000; its row's does not."""
    problem = problem_of("rows:200", n=512)
    inputs = make_inputs(problem, CPU)
    right = reference(inputs)
    output = inputs.sets[0].output
    pretend(inputs, 0)
    output.rows[137, 9] = float(right[137].square().mean().sqrt()) + float(right[137, 9])
    checked = check(output, right, inputs.sizes, tolerance(problem))
    assert checked.message.startswith("group 0: row 137 of 200 off by")
    assert checked.error is not None and checked.error < tolerance(problem).group


def test_a_swap_of_two_rows_is_found() -> None:
    problem = problem_of("rows:100,100")
    inputs = make_inputs(problem, CPU)
    pretend(inputs, 0)
    rows = inputs.sets[0].output.rows
    rows[[7, 8]] = rows[[8, 7]].clone()
    assert "group 0" in check(inputs.sets[0].output, reference(inputs), inputs.sizes, tolerance(problem)).message


@pytest.mark.parametrize("routing", ["rows:0,5,0,130", "rows:0,0,0", "rows:0,7", "rows:7,0"])
def test_empty_groups_are_right_when_nothing_is_written_P1(routing: str) -> None:
    inputs = make_inputs(problem_of(routing, "nvfp4"), CPU)
    assert judge(inputs).ok
    if inputs.problem.m == 0:
        inputs.sets[0].output.buffer[GUARD_ROWS] = 1.0
        assert not check(inputs.sets[0].output, reference(inputs), inputs.sizes, tolerance(inputs.problem)).ok


def test_guards_on_both_sides() -> None:
    inputs = make_inputs(problem_of(), CPU)
    pretend(inputs, 0)
    inputs.sets[0].output.buffer[GUARD_ROWS - 1, 0] = 0.0
    checked = check(inputs.sets[0].output, reference(inputs), inputs.sizes, tolerance(inputs.problem))
    assert checked.message == "wrote outside the output: 1 rows before it"


def test_fp8_sums_of_14_bits_pass_and_a_wrong_scale_does_not() -> None:
    """What Hopper's fp8 tensor cores do: the running sum is cut to 14 bits after every 32 elements along K."""
    problem = GroupedGemm(128, 64, 6144, 1, "fp8")
    inputs = make_inputs(problem, CPU)
    a, b = dequantize(inputs.a), dequantize(inputs.b)
    running = torch.zeros(128, 64)
    for k in range(0, 6144, 32):
        running += a[:, k : k + 32] @ b[:, k : k + 32].T
        mantissa, exponent = torch.frexp(running)
        running = torch.ldexp((mantissa * 2**14).trunc() / 2**14, exponent)
    output, right, allowed = inputs.sets[0].output, reference(inputs), tolerance(problem)
    output.rows.copy_(running * inputs.alpha[0])
    checked = check(output, right, inputs.sizes, allowed)
    assert checked.ok, checked.message
    assert checked.error is not None and checked.error > 3e-3, "well over the rounding alone"
    output.rows.copy_(running * inputs.alpha[0] * 1.03)
    assert not check(output, right, inputs.sizes, allowed).ok


def test_inputs_are_seeded_differ_between_groups_and_are_not_zero() -> None:
    problem = problem_of(format="nvfp4")
    one, two = make_inputs(problem, CPU), make_inputs(problem, CPU)
    assert torch.equal(one.a.values, two.a.values) and torch.equal(one.sets[0].b, two.sets[0].b)
    other = make_inputs(GroupedGemm(**{**problem.as_dict(), "seed": 1}), CPU)
    assert not torch.equal(one.a.values, other.a.values)
    assert one.offsets.dtype == torch.int32 and one.offsets.tolist() == [0, 0, 65, 194, 197, 197]
    assert len(set(one.alpha.tolist())) == 5
    assert (one.a.values == 0).float().mean() < 0.2
    groups = one.b.values.view(5, 64, -1)
    assert not torch.equal(groups[0], groups[1])


def test_reference_is_the_exact_product_within_float32() -> None:
    inputs = make_inputs(problem_of(format="mxfp8_mxfp4"), CPU)
    a, b = dequantize(inputs.a).double(), dequantize(inputs.b).double().view(5, 64, 256)
    exact = torch.cat(
        [
            a[first : first + rows] @ b[group].T * inputs.alpha[group].double()
            for group, (first, rows) in enumerate(zip([0, 0, 65, 194, 197], inputs.sizes, strict=True))
        ]
    )
    assert float((reference(inputs).double() - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.parametrize("format", FORMATS)
def test_products_are_of_order_one_in_every_format(format: str) -> None:
    """The tensors' scales come back through alpha; fp16 outputs do not overflow."""
    right = reference(make_inputs(problem_of(format=format), CPU))
    assert 0.3 < float(right.square().mean().sqrt()) < 3
    assert float(right.abs().max()) < 100


def test_sets_rotate_past_twice_the_cache_and_within_memory() -> None:
    problem = problem_of("rows:4,4", n=256)
    one = operand_bytes(problem)
    plenty = working_bytes(problem) + 10_000 * one
    sets = set_count(problem, 1_000_000, plenty)
    assert sets * problem.bytes() >= 2_000_000 > (sets - 1) * problem.bytes()
    assert set_count(problem, 1_000_000, working_bytes(problem) + 3 * one) == 3
    assert set_count(problem, 1_000_000, one) == 0
    assert set_count(GroupedGemm(512, 4096, 6144, 32, "bf16"), 60 * 2**20, 100 * 2**30) == PLACES
    inputs = make_inputs(problem, CPU, sets=3, l2_bytes=1_000_000)
    addresses = {t.data_ptr() for s in inputs.sets for t in (s.a, s.b, s.output.buffer)}
    assert len(addresses) == 9
    assert all(judge(inputs, index=index).ok for index in range(3))
    assert inputs.cold == pytest.approx(3 * problem.bytes() / 1e6)


def test_memory_is_estimated_as_it_is_used() -> None:
    problem = problem_of(format="nvfp4")
    operands = make_inputs(problem, CPU).sets[0]
    tensors = (operands.a, operands.b, operands.sfa, operands.sfb, operands.output.buffer)
    used = sum(t.numel() * t.element_size() for t in tensors if t is not None)
    assert used <= operand_bytes(problem) <= 1.5 * used


def test_poison_is_a_nan_of_its_own() -> None:
    for out in ("bf16", "fp16", "fp32"):
        output = Output.empty(3, 8, out, CPU)
        assert output.buffer.isnan().all()
        fresh = torch.full((1,), float("nan"), dtype=output.buffer.dtype)
        assert fresh.view(output.bits.dtype).item() != output.bits[0, 0].item()
