"""What ptxas says of the GEMM kernel: registers, spills, stack, read from the log of ``-Xptxas=-v``."""

from __future__ import annotations

import re
from typing import Any

#: A GEMM is an instance of this function template (cutlass/device_kernel.h, 4.2.0 and 4.5.0); ``derive_groups``, the
#: other kernel of an object, is not.
_GEMM = "device_kernel"
_PTXAS = re.compile(r"^ptxas info\s*: (?P<text>.*)")
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<name>[^\s']+)'?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


def gemm_usage(log: str) -> dict[str, Any]:
    """``registers`` a thread, ``spill_bytes`` (``stores`` and ``loads`` a thread, static) and ``stack_bytes`` a thread.

    Of the GEMM kernel in a compiler's output, as nvcc 13.0.88 writes it. Empty when the log does not hold all
    of them: an older entry of a cache, or a compiler that was not asked. Functions that the kernel calls instead of
    inlining are not counted; there are none in a CUTLASS GEMM that is compiled with optimisation.
    """
    found: dict[str, Any] = {}
    entry = function = ""
    for line in log.splitlines():
        told = _PTXAS.match(line)
        text = told["text"] if told else line
        if start := _ENTRY.search(text):
            entry = function = start["name"]
        elif start := _PROPERTIES.search(text):
            function = start["name"]
        elif _GEMM not in entry:
            continue
        elif stack := _STACK.search(text):
            if function == entry:
                found["stack_bytes"] = int(stack[1])
                found["spill_bytes"] = {"stores": int(stack[2]), "loads": int(stack[3])}
        elif told and (used := _REGISTERS.match(text)):
            found["registers"] = int(used[1])
    return found if len(found) == 3 else {}
