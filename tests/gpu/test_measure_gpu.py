"""Measuring on a real GPU: a worker that outlives every kind of kernel, a clock that repeats, baselines.

Needs torch and nvcc (half a minute to compile one small kernel and two real ones; cached after that).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tileforge import paths  # noqa: E402
from tileforge.arch.gpus import match_gpu  # noqa: E402
from tileforge.measure.gpu import GpuBench  # noqa: E402
from tileforge.measure.quantize import quantize  # noqa: E402
from tileforge.measure.worker import Timeouts  # noqa: E402
from tileforge.problem import GroupedGemm  # noqa: E402
from tileforge.tactic import Tactic  # noqa: E402
from tileforge.toolchain import Builder, Kernel, KernelSpec, find_compiler  # noqa: E402

pytestmark = pytest.mark.gpu

#: Ragged: first and last group empty, one row over half a tile, one over a tile (cases P1 and P2).
RAGGED = GroupedGemm(200, 512, 768, 5, "bf16", routing="rows:0,65,129,6,0")
DECODE = GroupedGemm(512, 4096, 6144, 32, "bf16", routing="uniform")
PLANTED = Tactic.parse("128x128x64_c1x1_coop_s2")
REAL = {
    "bf16": Tactic.parse("128x16x128_c1x1_coop_swap"),
    "fp8": Tactic.parse("128x16x128_c1x1_coop_swap"),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    output = tmp_path_factory.mktemp("planted") / "planted.so"
    major, minor = torch.cuda.get_device_capability()
    compiler = find_compiler()
    flags = ["-std=c++17", "-O2", "-shared", "-cudart=static", "-Xcompiler=-fPIC", f"-arch=sm_{major}{minor}"]
    source = Path(__file__).with_name("misbehaving_kernel.cu")
    subprocess.run(
        compiler.command([*flags, f"-I{paths.kernels_dir()}", str(source), "-o", str(output)]), check=True, timeout=300
    )
    return Kernel(KernelSpec(f"sm{major}{minor}", "bf16", "bf16", PLANTED), output, {}, "planted")


@pytest.fixture(scope="module")
def bench() -> Iterator[GpuBench]:
    with GpuBench(timeouts=Timeouts(check=20, time=60)) as bench:
        yield bench


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the real kernels of this test are SM90's")
    specs = [KernelSpec("sm90", format, "bf16", tactic) for format, tactic in REAL.items()]
    outcomes = Builder().build(specs)
    assert all(outcome.ok for outcome in outcomes), [outcome.message for outcome in outcomes]
    return {outcome.spec.format: outcome.kernel for outcome in outcomes if outcome.kernel}


def test_facts_and_conditions(bench: GpuBench, planted: Kernel) -> None:
    facts = bench.facts()
    assert facts["fake"] is False and facts["name"] == torch.cuda.get_device_name()
    for figure in ("sms", "smem_per_block", "l2_bytes", "memory_bytes"):
        assert facts[figure] > 0, figure
    measured = bench.measure(RAGGED, PLANTED, planted)
    assert measured.ok, measured.message
    assert measured.error is not None and 5e-4 < measured.error < 4e-3
    assert measured.conditions["sm_mhz"] > 500, "read under load"
    assert measured.conditions["graph"] and measured.conditions["cold"] >= 2.0


BEHAVIOURS = [
    ("w2", "wrong_result", "NaN", False),
    ("w4", "wrong_result", "group 1: row 64 of 65 zero", False),
    ("w8", "wrong_result", "wrote outside the output: 1 rows after", False),
    ("rm", "timeout", "no answer from check", True),
    ("rm_w2", "launch_failed", "illegal memory access", True),
    ("rm_w4", "crashed", "SIGABRT", True),
    ("rm_w8", "wrong_result", "relative error", False),
    ("rn", "launch_failed", "refused, as planted", False),
    ("rn_w2", "wrong_result", "after repeated calls", False),
    ("rn_w4", "wrong_result", "not written", False),
    ("rn_w8", "wrong_result", "relative error", False),
]


@pytest.mark.parametrize(("runtime", "status", "message", "lost"), BEHAVIOURS, ids=lambda value: str(value))
def test_a_bad_kernel_costs_only_itself_M4_M5(
    runtime: str, status: str, message: str, lost: bool, bench: GpuBench, planted: Kernel
) -> None:
    restarts = bench.restarts
    measured = bench.measure(RAGGED, Tactic.parse(f"{PLANTED.id}_{runtime}"), planted)
    assert measured.status == status, measured.message
    assert message in measured.message and measured.median_us is None
    assert bench.restarts - restarts == 2 * lost, "tried again in a new worker before it is blamed"
    after = bench.measure(RAGGED, PLANTED, planted, samples=2)
    assert after.ok, after.message


def test_a_kernel_of_another_tactic_or_format_is_refused(bench: GpuBench, planted: Kernel) -> None:
    other = bench.measure(RAGGED, Tactic.parse("128x256x64"), planted)
    assert other.status == "not_measured" and "tile_n = 128" in other.message
    fp8 = bench.measure(GroupedGemm(8, 512, 768, 2, "fp8"), PLANTED, planted)
    assert fp8.status == "not_measured" and "format" in fp8.message
    assert bench.measure(RAGGED, PLANTED).message.startswith("no kernel")


def test_nothing_to_launch_and_too_much(bench: GpuBench, planted: Kernel) -> None:
    empty = bench.measure(GroupedGemm(0, 512, 768, 5, "bf16"), PLANTED, planted)
    assert empty.status == "not_measured" and "nothing was written" in empty.message
    huge = bench.measure(GroupedGemm(64, 65536, 65536, 64, "bf16"), PLANTED, planted)
    assert huge.status == "out_of_memory" and "not measured" in huge.message


def test_quantised_bytes_are_the_cpus() -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    for kind in ("bf16", "e4m3", "nvfp4", "mxfp4", "mxfp8"):
        here, there = quantize(x, kind), quantize(x.cuda(), kind)
        same = (here.values.view(torch.uint8) == there.values.cpu().view(torch.uint8)).float().mean()
        assert same > 0.999, kind  # a division may round differently on a tie
        if here.scales is not None and there.scales is not None:
            assert torch.equal(here.scales, there.scales.cpu()), kind


@pytest.mark.parametrize("format", REAL)
def test_real_kernels_are_right_on_ragged_groups_P1_P2(
    format: str, bench: GpuBench, kernels: dict[str, Kernel]
) -> None:
    for routing in ("rows:0,65,129,6,0", "rows:0,5,0,130,65", "rows:0,0,0,0,200"):
        rows = sum(int(part) for part in routing[5:].split(","))
        problem = GroupedGemm(rows, 512, 768, 5, format, routing=routing)
        measured = bench.measure(problem, REAL[format], kernels[format], samples=2)
        assert measured.ok, f"{problem}: {measured.message}"


@pytest.mark.parametrize("format", REAL)
def test_the_clock_repeats(format: str, bench: GpuBench, kernels: dict[str, Kernel]) -> None:
    problem = GroupedGemm(512, 4096, 6144, 32, format, routing="uniform")
    first = bench.measure(problem, REAL[format], kernels[format])
    second = bench.measure(problem, REAL[format], kernels[format])
    assert first.ok and second.ok, (first.message, second.message)
    assert first.median_us is not None and second.median_us is not None and first.error is not None
    assert first.discarded == 0
    assert second.median_us == pytest.approx(first.median_us, rel=0.03)
    gpu = match_gpu(bench.facts()["name"], bench.facts()["sms"])
    assert gpu is not None
    assert first.median_us > 1e6 * problem.bytes() / gpu.bandwidth * 0.95, "weights come from memory"
    print(f"{format}: {first.median_us:.1f} us, error {first.error:.2e}, {dict(first.conditions)}")


def test_baselines(bench: GpuBench) -> None:
    copy = bench.baseline("copy")
    gpu = match_gpu(bench.facts()["name"], bench.facts()["sms"])
    if gpu is not None:
        assert 0.7 * gpu.bandwidth < copy["bytes_per_s"] < 1.02 * gpu.bandwidth
    grouped = bench.baseline("grouped_mm", DECODE)
    assert grouped["status"] == "ok" and grouped["error"] < 5e-3
    print(f"copy {copy['bytes_per_s'] / 1e12:.2f} TB/s, torch._grouped_mm {grouped['median_us']:.1f} us")
