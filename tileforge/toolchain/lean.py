"""CUTLASS's headers made cheaper to compile: edited copies that go before the originals on the include path.

A kernel is up to 46,000 instances of CuTe's function templates, and the compiler's front end spends two thirds of a
build on them. The edits here replace CuTe's way to a result by a shorter one (kernels/lean/). They change no type,
hence no instruction: the machine code that comes out is the same, which benchmarks/build_cost.py compares. They take
part in the cache key all the same (:func:`lean_digest`), so that a mistake in them could be told by its kernels.

An edit names the text that it replaces. Where a CUTLASS does not have that text, the file stays the original's.
Read in CUTLASS 4.2.0 and 4.5.0.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_INCLUDED = ("lean/static_layout.cuh", "lean/tuple.cuh")
_STATIC = '#include "lean/static_layout.cuh"\n'


@dataclass(frozen=True)
class Edit:
    """``old`` is a regular expression that must match exactly once; ``new`` as in :func:`re.sub`."""

    old: str
    new: str


def _after(line: str, added: str) -> Edit:
    return Edit(f"({re.escape(line)}.*\n)", rf"\1{added}")


def _known(returned: str, answer: str, prelude: str = "") -> Edit:
    """Before ``prelude; return returned;``: the answer of kernels/lean/static_layout.cuh, where it has one."""
    start = r"\s+".join(re.escape(word) for word in prelude.split())
    end = r"\s+".join(re.escape(word) for word in f"return {returned};".split())
    body = rf"({start + chr(92) + 's+' if start else ''}{end})"
    return Edit(
        body,
        rf"if constexpr (tf::lean::{answer}::ok) {{ return typename tf::lean::{answer}::type{{}}; }} "
        r"else { \1 }\n  CUTE_GCC_UNREACHABLE;",
    )


def _empty(returned: str) -> Edit:
    """``return returned;``: only the type is needed where that holds no value, so nothing is called."""
    body = r"\s+".join(re.escape(word) for word in f"return {returned};".split())
    return Edit(
        body,
        f"using Result_ = decltype(({returned}));\n  using Value_ = remove_cvref_t<Result_>;\n"
        "  if constexpr (is_empty<Value_>::value) { return Value_{}; } "
        f"else {{ return {returned}; }}\n  CUTE_GCC_UNREACHABLE;",
    )


_FLAT = (
    "auto flat_shape = flatten(layout.shape()); auto flat_stride = flatten(layout.stride()); "
    "constexpr int R = decltype(rank(flat_shape))::value;"
)
_COALESCED = "detail::bw_coalesce<R-2>(flat_shape, flat_stride, get<R-1>(flat_shape), get<R-1>(flat_stride))"

EDITS: dict[str, tuple[Edit, ...]] = {
    "cute/container/tuple.hpp": (
        Edit(
            r"(?s)namespace cute\n\{\n\ntemplate <class\.\.\. T>\nstruct tuple;.*?"
            r"(?=// Returns the first position of type X)",
            '#include "lean/tuple.cuh"\n\nnamespace cute\n{\n\n',
        ),
    ),
    "cute/algorithm/tuple_algorithms.hpp": (
        _empty("g(f(get<I>(static_cast<T&&>(t)))...)"),
        _empty("g(f(get<I>(static_cast<T0&&>(t0)), get<I>(static_cast<T1&&>(t1)))...)"),
        _empty("g(f(get<I>(static_cast<T0&&>(t0)), get<I>(static_cast<T1&&>(t1)), get<I>(static_cast<T2&&>(t2)))...)"),
        _empty("(FoldAdaptor<F,V>{f,v} | ... | get<Is>(static_cast<T&&>(t))).val_"),
    ),
    "cute/underscore.hpp": (
        _after("#include <cute/numeric/integral_constant.hpp>", _STATIC),
        _known(
            "filter_tuple(a, b, [](auto const& x, auto const& y) { return detail::lift_slice(x,y); })", "Slice<A, B>"
        ),
    ),
    "cute/layout.hpp": (
        _after("#include <cute/underscore.hpp>", _STATIC),
        _empty("make_layout(f(get<I>(t))...)"),
        _empty("make_layout(f(get<I>(t0),get<I>(t1))..., get<I0>(t0)..., get<I1>(t1)...)"),
        _known(
            "detail::composition_impl(flat_lhs.shape(), flat_lhs.stride(), rhs.shape(), rhs.stride())",
            "Compose<LShape, LStride, RShape, RStride>",
            "auto flat_lhs = detail::coalesce_x(lhs, coprofile(rhs));",
        ),
        _known(
            "detail::complement(filter_layout.shape(), filter_layout.stride(), shape(cotarget))",
            "Complement<Shape, Stride, remove_cvref_t<decltype(shape(cotarget))>>",
            "auto filter_layout = filter(layout);",
        ),
        _known(_COALESCED, "Coalesce<Shape, Stride, false>", _FLAT),
        Edit(
            r"(?s)(coalesce_x\(Layout<Shape,Stride> const& layout\)\n\{\n)(.*?)(\n\}\n)",
            r"\1  if constexpr (tf::lean::Coalesce<Shape, Stride, true>::ok) {"
            r" return typename tf::lean::Coalesce<Shape, Stride, true>::type{}; } else {\n\2\n  }\n"
            r"  CUTE_GCC_UNREACHABLE;\3",
        ),
    ),
}

#: Headers that include those of all SMs, and which of their lines ``#include "..."`` a kernel needs, by the SM's header
#: in kernels/.
KEPT: dict[str, dict[str, str]] = {
    "sm120": {
        "cutlass/gemm/collective/collective_builder.hpp": (
            "/(collective_mma|collective_mma_decl|collective_builder_decl)\\.hpp"
            "|/(sm100_blockscaled_umma|sm120_blockscaled_mma)_builder\\.inl"
        ),
        "cutlass/gemm/collective/collective_mma.hpp": ("/(collective_mma_decl|sm120_blockscaled_mma_array_tma)\\.hpp"),
        "cutlass/epilogue/collective/collective_builder.hpp": (
            "/(callbacks|dependent_false)\\.hpp|/(sm90|sm120)_builder\\.inl"
        ),
        "cutlass/gemm/kernel/gemm_universal.hpp": (
            "/(gemm_universal_decl\\.h|tile_scheduler\\.hpp|sm90_gemm_array_tma_warpspecialized_)"
        ),
    },
}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)".*\n', re.MULTILINE)


def write_lean(include: Path, target: Path, kernels: Path, sm: str) -> list[str]:
    """Writes the edited headers of ``include`` below ``target``; returns their names, for messages and records.

    ``kernels``: the directory of kernel sources, of which ``lean/`` is included; without that nothing is written.
    ``sm``: the SM's header there, such as ``sm120``. A header that is not there, or in which an edit does not find its
    place exactly once, is left out.
    """
    written: list[str] = []
    if not all((kernels / name).is_file() for name in _INCLUDED):
        return written
    kept = KEPT.get(sm, {})
    for name in (*EDITS, *kept):
        try:
            text = (include / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        edited = apply(text, EDITS[name]) if name in EDITS else trim(text, kept[name], name.rpartition("/")[0])
        if edited is not None:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(edited, encoding="utf-8")
            written.append(name)
    return written


def apply(text: str, edits: tuple[Edit, ...]) -> str | None:
    """``text`` after all ``edits``; None when one of them does not match exactly once."""
    for edit in edits:
        text, count = re.subn(edit.old, edit.new, text)
        if count != 1:
            return None
    return text


def trim(text: str, kept: str, directory: str) -> str:
    """``text`` without the lines ``#include "..."`` whose file does not match ``kept``.

    Files named relative to ``directory``, the header's own, are named in full: the copy lies elsewhere.
    """

    def line(found: re.Match[str]) -> str:
        name = found[1] if found[1].startswith(("cutlass/", "cute/")) else f"{directory}/{found[1]}"
        return f'#include "{name}"\n' if re.search(kept, name) else ""

    return _INCLUDE.sub(line, text)


def lean_digest(kernels: Path) -> str:
    """Twelve hex digits over the edits and what they include: a part of a kernel's cache key."""
    digest = hashlib.sha256(repr((EDITS, KEPT)).encode())
    for path in sorted((kernels / "lean").glob("*.cuh")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
