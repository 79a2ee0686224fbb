"""How many compiles this machine takes at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

#: Most memory that one compile takes at a time (cicc's resident set), by SM; others count as the largest.
#: Measured with wait4 on the kernels of this repository, nvcc 13.0.88, CUTLASS 4.2.0 and 4.5.0, 2 cores, 2026-11-30:
#: SM90 bf16 and fp8 3.0 to 3.35 GB, SM120 nvfp4, mxfp4, mxfp8_mxfp4 5.7 to 5.9 GB; a little room on top.
COMPILE_BYTES = {"sm90": 3_500_000_000, "sm120": 6_200_000_000, "sm121": 6_200_000_000}
_CGROUP = Path("/sys/fs/cgroup")


def default_jobs(archs: Iterable[str] = ()) -> int:
    """One compile for each core that this process may use, fewer when memory would run out; at least one.

    ``archs``: those to compile for; the hungriest sets the figure.
    """
    largest = max(COMPILE_BYTES.values())
    compile_bytes = max((COMPILE_BYTES.get(arch, largest) for arch in archs), default=largest)
    jobs, memory = usable_cores(), available_bytes()
    return max(1, jobs if memory is None else min(jobs, memory // compile_bytes))


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Cores by affinity and by the cgroup's CPU quota (a container often has fewer than the machine shows)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return cores


def available_bytes(cgroup: Path = _CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that new processes can take: the machine's, or what the cgroup's limit leaves. None: not known."""
    found: list[int] = []
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    try:
        limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            used = int((cgroup / "memory.current").read_text(encoding="ascii"))
            # memory.current counts the page cache, which gives way: a container that has read many files is not full
            for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines():
                if line.startswith("inactive_file "):
                    used -= int(line.split()[1])
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError, IndexError):
        pass
    return min(found) if found else None
