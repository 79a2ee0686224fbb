"""Runs one kernel through cases on a device: inside the worker process, which may die of it. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tileforge.errors import BuildError, DeviceError
from tileforge.measure.conditions import Conditions, device_facts
from tileforge.measure.inputs import Output
from tileforge.measure.protocol import Phase
from tileforge.toolchain.library import FORMATS, RASTERS, Library, arguments
from tileforge.verify.cases import EXACT, RANDOM, Case, Operands
from tileforge.verify.data import Expected, Tensors, expect, make
from tileforge.verify.faults import RESULT_FAULTS, operand_faults
from tileforge.verify.judge import Found, changed, judge

#: What lies in the workspace before a call, and in the bytes after it, which no kernel may write.
_STALE, _GUARD_BYTES = 0xA5, 4096
_ALIGNMENT = 256


@dataclass(frozen=True)
class Held:
    """One set of operands with its truth, kept for the next kernel of the same format."""

    tensors: Tensors
    before: list[Tensor]
    expected: Expected


@dataclass
class Tally:
    """What is told of a kernel: plain values, for the pipe."""

    cases: int = 0
    cases_right: int = 0
    values: int = 0
    mismatches: int = 0
    signed_zeros: int = 0
    over_bound: int = 0
    worst_ratio: float = 0.0
    failed: list[str] = field(default_factory=list)

    def add(self, case: Case, found: Found) -> None:
        self.cases += 1
        self.cases_right += found.ok
        self.values += found.values
        self.mismatches += found.mismatches
        self.signed_zeros += found.signed_zeros
        self.over_bound += found.over_bound
        self.worst_ratio = max(self.worst_ratio, found.worst_ratio)
        if not found.ok:
            self.failed.append(f"{case.id}: {found.message}")


class VerifyBackend:
    """Launches kernels on ``device``: ``cuda:0``, or ``cpu`` for shared objects that compute on the CPU."""

    def __init__(self, device: str = "cuda:0") -> None:
        self.device = torch.device(device)
        self.dead = False
        if self.device.type == "cuda":
            if not torch.cuda.is_available() or (self.device.index or 0) >= torch.cuda.device_count():
                raise DeviceError(
                    f"no GPU to run kernels on: torch {torch.__version__} sees {torch.cuda.device_count()}"
                )
            torch.cuda.set_device(self.device)
            # TF32 and the like do not touch float64, in which references are computed.
        self._held: dict[tuple[str, str, Operands], Held] = {}

    def facts(self) -> dict[str, Any]:
        if self.device.type == "cpu":
            return {"name": "cpu", "sm": None, "sms": 4, "smem_per_block": None}
        index = self.device.index or 0
        uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", "") or "")
        return device_facts(index, Conditions(uuid, index))

    def close(self) -> None:
        self._held.clear()

    def verify(self, *, path: Path, format: str, out: str, cases: Sequence[Case], phase: Phase) -> dict[str, Any]:
        """Every case, then the planted faults on the first two that have rows of each kind of data.

        Plain values: :class:`Tally`, ``faults`` (name -> noticed), ``seconds``. A kernel that does not launch, or
        loses the device's context, ends it: ``stopped`` says at what and why. Raises BuildError for a file that is
        no kernel of this format.
        """
        start = time.monotonic()
        phase("load")
        library = Library(path)
        if library.query()["format"] != FORMATS[format]:
            raise BuildError(f"{path} is a kernel of another format than {format}")
        tally, faults, stopped, at = Tally(), {}, "", "load"
        try:
            library.load(self.device.index or 0)
            for case in cases:
                at = case.id
                phase(at)
                tally.add(case, self._run(library, case, format, out))
            at = "planted faults"
            phase(at)
            faults = self._faults(library, cases, format, out)
        except DeviceError as error:
            stopped = f"{at}: {error}"
            self.dead = self._lost()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # torch's, for what the kernel did to the context
            stopped = f"{at}: {(str(error).splitlines() or [type(error).__name__])[0]}"
            self.dead = True
        seconds = round(time.monotonic() - start, 3)
        return {**vars(tally), "faults": faults, "stopped": stopped, "dead": self.dead, "seconds": seconds}

    def _hold(self, case: Case, format: str, out: str) -> Held:
        key = (format, out, case.operands)
        if key not in self._held:
            tensors = make(case.operands, format, out, self.device)
            before = [each.clone() for each in tensors.read()]
            self._held[key] = Held(tensors, before, expect(tensors, format, out))
        return self._held[key]

    def _run(self, library: Library, case: Case, format: str, out: str) -> Found:
        held = self._hold(case, format, out)
        output = Output.empty(case.m, case.n, out, self.device)
        trouble = self._launch(library, case, held.tensors, output)
        found = judge(case, output, held.expected)
        if changed(held.before, held.tensors.read()):
            trouble = "wrote into its operands"
            del self._held[(format, out, case.operands)]
        if trouble:
            counted = {**vars(found), "message": f"{trouble}{'; ' if found.message else ''}{found.message}"}
            return Found(**counted)
        return found

    def _launch(self, library: Library, case: Case, tensors: Tensors, output: Output) -> str:
        """Runs the kernel to its end. Returns what it did to its workspace, "" for nothing."""
        fields: dict[str, Any] = {
            "device": self.device.index or 0,
            "a": tensors.a.values.data_ptr(),
            "b": tensors.b.values.data_ptr(),
            "sfa": tensors.sfa.data_ptr() if tensors.sfa is not None else None,
            "sfb": tensors.sfb.data_ptr() if tensors.sfb is not None else None,
            "alpha": tensors.alpha.data_ptr(),
            "d": output.rows.data_ptr(),
            "offsets": tensors.offsets.data_ptr(),
            "groups": len(case.sizes),
            "n": case.n,
            "k": case.k,
            "m": case.m,
            "raster": RASTERS[case.raster],
            "max_swizzle": case.swizzle,
            "sm_count": case.sm_count,
            "stream": self._stream(),
        }
        size = library.workspace_size(arguments(**fields))
        room = torch.full((size + _GUARD_BYTES + _ALIGNMENT,), _STALE, dtype=torch.uint8, device=self.device)
        room = room[-room.data_ptr() % _ALIGNMENT :]
        args = arguments(**fields, workspace=room.data_ptr(), workspace_bytes=size)
        library.prepare(args)
        library.run(args)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return "" if bool((room[size : size + _GUARD_BYTES] == _STALE).all()) else "wrote beyond its workspace"

    def _lost(self) -> bool:
        """Whether the device's context no longer answers."""
        try:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except RuntimeError:
            return True
        return False

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream) if self.device.type == "cuda" else 0

    def _faults(self, library: Library, cases: Sequence[Case], format: str, out: str) -> dict[str, bool]:
        """Name -> noticed. None are planted when no case has several groups with rows."""
        found: dict[str, bool] = {}
        for data in (EXACT, RANDOM):
            case = next((each for each in cases if each.data == data and len(set(each.sizes) - {0}) > 1), None)
            if case is None:
                continue
            held = self._hold(case, format, out)
            for name, plant in operand_faults(held.tensors.sfa is not None).items():
                output = Output.empty(case.m, case.n, out, self.device)
                self._launch(library, case, plant(held.tensors), output)
                found[f"{name}, {data} data"] = not judge(case, output, held.expected).ok
            if data == RANDOM:
                continue
            for name, spoil in RESULT_FAULTS.items():
                output = Output.empty(case.m, case.n, out, self.device)
                # On what is right, not on what this kernel makes: a wrong kernel's fault would hide the planted one.
                output.bits.copy_(held.expected.bits)
                spoil(output, sum(case.sizes))
                found[f"{name}, {data} data"] = not judge(case, output, held.expected).ok
        return found
