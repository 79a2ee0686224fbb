"""Asking an object that has just been compiled what it is, before it is believed."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

from tileforge.errors import BuildError
from tileforge.toolchain.library import ABI_VERSION, FORMATS, OUTS, SCHEDULES, Info
from tileforge.toolchain.spec import KernelSpec

NO_ANSWER = "does not answer tf_query"
_QUERY_TIMEOUT_S = 60.0
#: Prints tf_info as a list of numbers. The buffer has room for the larger structure of another interface version.
_ASK = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
for name in ("tf_workspace_size", "tf_load", "tf_prepare", "tf_run", "tf_last_error"):
    getattr(library, name)
buffer = (ctypes.c_int32 * 1024)()
code = library.tf_query(buffer)
if code:
    raise RuntimeError(f"code {code}")
print(json.dumps(buffer[:int(sys.argv[2])]))
"""


def query(path: Path, spec: KernelSpec) -> dict[str, int]:
    """What the kernel in ``path`` answers to ``tf_query``, checked against ``spec``.

    Asked in a process of its own, so that a broken object cannot take this one down. Raises BuildError.
    """
    try:
        # -I -S: neither tileforge nor anything else is imported there, only ctypes.
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _ASK, str(path), str(ctypes.sizeof(Info) // 4)],
            capture_output=True,
            text=True,
            timeout=_QUERY_TIMEOUT_S,
        )
        info = dict(zip((field[0] for field in Info._fields_), json.loads(answer.stdout), strict=True))
    except subprocess.TimeoutExpired:
        raise BuildError(f"the kernel compiled but {NO_ANSWER} within {_QUERY_TIMEOUT_S:g} s") from None
    except ValueError:
        # The last line of a traceback: "Class: message", and the message may name the file.
        last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
        said = (last.partition(": ")[2] or last).replace(str(path), "the object")
        raise BuildError(f"the kernel compiled but {NO_ANSWER}: {said}") from None
    tactic = spec.tactic
    for name, answered, wanted in (
        ("interface version", info["abi_version"], ABI_VERSION),
        ("sm", info["sm"], spec.sm),
        ("format", info["format"], FORMATS[spec.format]),
        ("out", info["out"], OUTS[spec.out]),
        ("tile", (info["tile_m"], info["tile_n"], info["tile_k"]), tactic.tile),
        ("cluster", (info["cluster_m"], info["cluster_n"]), tactic.cluster),
        ("schedule", info["schedule"], SCHEDULES[tactic.schedule]),
        ("swap_ab", info["swap_ab"], int(tactic.swap_ab)),
        ("stages", info["stages"], tactic.stages or info["stages"]),
        ("epilogue tile", (info["epi_m"], info["epi_n"]), tactic.epilogue_tile or (info["epi_m"], info["epi_n"])),
    ):
        if answered != wanted:
            raise BuildError(f"the kernel compiled, but as another one: its {name} is {answered}, asked was {wanted}")
    return info
