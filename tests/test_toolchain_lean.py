"""The edited CUTLASS headers: every edit finds its place in the CUTLASS that is here, or leaves the header alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
from fake_toolchain import ROOT, Fake, fake, headers, spec

from tileforge.errors import ToolchainError
from tileforge.toolchain import find_compiler, find_cutlass
from tileforge.toolchain.lean import EDITS, KEPT, Edit, apply, lean_digest, trim, write_lean
from tileforge.toolchain.spec import language_flags

KERNELS = ROOT / "kernels"


@pytest.mark.parametrize("sm", ["sm90", "sm120"])
def test_every_edit_fits_the_installed_cutlass(sm: str, tmp_path: Path) -> None:
    try:
        include = find_cutlass().include
    except ToolchainError as error:  # no CUTLASS in this environment
        pytest.skip(str(error))
    written = write_lean(include, tmp_path, KERNELS, sm)
    assert written == [*EDITS, *KEPT.get(sm, {})]
    for name in written:
        assert (tmp_path / name).read_text() != (include / name).read_text()


def test_an_edit_that_does_not_fit_leaves_the_header_alone(tmp_path: Path) -> None:
    assert apply("a b a", (Edit("b", "c"),)) == "a c a"
    assert apply("a b a", (Edit("a", "c"),)) is None and apply("a b a", (Edit("x", "c"),)) is None
    include = headers(tmp_path / "include")
    for name in EDITS:
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text("// another CuTe\n")
    assert write_lean(include, tmp_path / "lean", KERNELS, "sm120") == [] and not (tmp_path / "lean").exists()


def test_without_what_the_edits_include_there_are_none(tmp_path: Path) -> None:
    include = headers(tmp_path / "include")
    name = next(iter(KEPT["sm120"]))
    (include / name).parent.mkdir(parents=True)
    (include / name).write_text('#include "cutlass/gemm/collective/sm70.hpp"\n')
    assert write_lean(include, tmp_path / "lean", tmp_path, "sm120") == []
    assert write_lean(include, tmp_path / "lean", KERNELS, "sm120") == [name]
    assert write_lean(include, tmp_path / "other", KERNELS, "sm90") == []


def test_trimming_keeps_what_matches_and_names_it_in_full() -> None:
    text = '#include <a>\n#include "cute/x.hpp"\n  # include "b/sm90.inl" // why\n#include "b/sm70.inl"\nint i;\n'
    assert trim(text, "/(x|sm90)\\.", "cutlass/c") == (
        '#include <a>\n#include "cute/x.hpp"\n#include "cutlass/c/b/sm90.inl"\nint i;\n'
    )


def test_the_digest_covers_edits_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lean_digest(KERNELS)
    assert len(first) == 12 and lean_digest(tmp_path) != first
    monkeypatch.setitem(EDITS, "cute/layout.hpp", ())
    assert lean_digest(KERNELS) != first


@pytest.fixture
def tools(tmp_path: Path) -> Fake:
    """The fake toolchain with a header that can be edited and the sources that the edit needs."""
    made = fake(tmp_path)
    (made.kernels / "lean").mkdir()
    for path in (KERNELS / "lean").iterdir():
        (made.kernels / "lean" / path.name).write_text(path.read_text())
    name = next(iter(KEPT["sm120"]))
    (made.cutlass.include / name).parent.mkdir(parents=True)
    (made.cutlass.include / name).write_text('#include "cutlass/gemm/collective/sm70.hpp"\n')
    return made


def test_the_builder_compiles_with_them_and_says_so(tools: Fake) -> None:
    (outcome,) = tools.builder().build([spec()])
    assert outcome.kernel is not None and outcome.kernel.meta["lean"] is True and tools.compiles == 1
    (plain,) = tools.builder().build([spec(arch="sm90", tile=(128, 64, 64))])
    assert plain.kernel is not None and plain.kernel.meta["lean"] is False and tools.compiles == 2


def test_what_fails_with_them_is_tried_with_the_original_headers(tools: Fake) -> None:
    nvcc = tools.compiler.nvcc
    nvcc.write_text(nvcc.read_text().replace("echo start", 'case "$*" in */lean*) exit 2;; esac\necho start'))
    (outcome,) = tools.builder().build([spec()])
    assert outcome.kernel is not None and outcome.kernel.meta["lean"] is False and tools.compiles == 1


CHECK = """
#include "cute/tensor.hpp"
#include "lean/static_layout.cuh"
using namespace cute;
template <class Lean, class Theirs> constexpr int same() {
  static_assert(is_same_v<typename Lean::type, Theirs>, "not CuTe's type");
  return 1;
}
template <class S, class D, class T, class E, class U> constexpr int check(Layout<S, D> l, Layout<T, E> r, U target) {
  int n = same<tf::lean::Coalesce<S, D, false>, decltype(coalesce(l))>();
  n += same<tf::lean::Coalesce<S, D, true>, decltype(cute::detail::coalesce_x(l))>();
  n += same<tf::lean::Slice<tuple<X, Int<0>, X>, tuple<S, D, T>>, decltype(slice(make_coord(_, Int<0>{}, _), tuple<S, D, T>{}))>();
  if constexpr (tf::lean::Compose<S, D, T, E>::ok) n += same<tf::lean::Compose<S, D, T, E>, decltype(composition(l, r))>();
  if constexpr (tf::lean::Complement<S, D, U>::ok) n += same<tf::lean::Complement<S, D, U>, decltype(complement(l, target))>();
  return n;
}
"""  # noqa: E501


def layout(random: Random) -> str:
    """A random static layout of 1 to 4 modes, some nested, strides compact in a random order, some 0."""
    shape = [random.choice((1, 2, 2, 3, 4, 8)) for _ in range(random.randint(1, 4))]
    stride, at = [0] * len(shape), random.choice((1, 1, 2))
    for mode in random.sample(range(len(shape)), len(shape)):
        stride[mode] = at
        at *= shape[mode] * random.choice((1, 1, 1, 2))
    stride = [0 if random.random() < 0.1 else d for d in stride]
    cut = random.randint(0, len(shape) - 1)

    def text(values: list[int]) -> str:
        leaves = [f"Int<{value}>" for value in values]
        if len(leaves) - cut > 1:
            leaves[cut:] = [f"tuple<{', '.join(leaves[cut:])}>"]
        return leaves[0] if len(leaves) == 1 else f"tuple<{', '.join(leaves)}>"

    return f"Layout<{text(shape)}, {text(stride)}>{{}}"


def test_static_layouts_are_cutes_own(tmp_path: Path) -> None:
    """The compiler agrees, type by type, on random layouts; what CuTe refuses must not be answered here."""
    try:
        compiler, cutlass = find_compiler(), find_cutlass()
    except ToolchainError as error:
        pytest.skip(str(error))
    random = Random(20261201)
    cases = [f"check({layout(random)}, {layout(random)}, Int<{random.choice((1, 24, 64))}>{{}})" for _ in range(60)]
    source = CHECK + f"constexpr int found = {' + '.join(cases)};\n"
    (tmp_path / "check.cu").write_text(source + 'static_assert(found > 60 * 4, "too few were answered");\n')
    command = [*language_flags(), "-ptx", "-arch=sm_90", f"-I{cutlass.include}", f"-I{KERNELS}", "-o", "check.ptx"]
    done = subprocess.run(
        compiler.command([*command, "check.cu"]), cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
