"""The toolchain: where CUTLASS and nvcc are, kernels' specifications, their cache, parallel builds, packs."""

from tileforge.toolchain.build import Builder, BuildOutcome
from tileforge.toolchain.cache import KernelCache
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.cutlass import Cutlass, cutlass_of, find_all_cutlass, find_cutlass
from tileforge.toolchain.describe import describe
from tileforge.toolchain.fetch import fetch_headers
from tileforge.toolchain.kernel import Kernel
from tileforge.toolchain.library import Library
from tileforge.toolchain.pack import pack, unpack
from tileforge.toolchain.spec import KernelSpec

__all__ = [
    "BuildOutcome",
    "Builder",
    "Compiler",
    "Cutlass",
    "Kernel",
    "KernelCache",
    "KernelSpec",
    "Library",
    "cutlass_of",
    "describe",
    "fetch_headers",
    "find_all_cutlass",
    "find_compiler",
    "find_cutlass",
    "pack",
    "unpack",
]
