"""From kernel specifications to rows: build, run through the cases in a worker as each is done, judge, note."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from tileforge import legality
from tileforge.arch import get_arch
from tileforge.errors import DeviceError
from tileforge.measure.worker import Lost, Timeouts, WorkerBench
from tileforge.toolchain import Builder, BuildOutcome, Kernel, KernelSpec
from tileforge.toolchain.spec import EMULATED_ON
from tileforge.verify.cases import Case, cases
from tileforge.verify.result import BLIND, COMPILE_FAILED, CRASHED, HUNG, REFUSED, RIGHT, WRONG, Row, Table

#: Seconds: a case takes milliseconds; the first of a format makes its operands and float64 reference as well.
TIMEOUTS = Timeouts(step=60.0)
#: Of what was wrong, so many cases are told in a row.
_TOLD = 3


def how_to_run(arch: str, device_sm: str) -> str:
    """``native`` or ``emulated``: how kernels of ``arch`` run on a device. Raises DeviceError where they do not."""
    if device_sm == arch:
        return "native"
    if device_sm == EMULATED_ON and get_arch(arch).kernels == "sm120":
        return "emulated"
    able = [arch, EMULATED_ON] if get_arch(arch).kernels == "sm120" else [arch]
    raise DeviceError(f"{arch} kernels cannot run here, on {device_sm}: verify them on {' or '.join(able)}")


class Verifier:
    """Builds and verifies kernels, one row each. ``bench`` runs :class:`~tileforge.verify.backend.VerifyBackend`.

    Kernels are run in this thread while others compile. A kernel that hangs or kills its worker costs its own row
    only. ``only``: take those cases alone (to look into one); such rows do not belong in a table.
    """

    def __init__(
        self,
        builder: Builder,
        bench: WorkerBench,
        table: Table | None = None,
        *,
        again: bool = False,
        only: Callable[[Case], bool] = lambda case: True,
    ) -> None:
        self.builder, self.bench, self.table, self.again, self.only = builder, bench, table or Table(), again, only

    @classmethod
    def bench_on(cls, device: int = 0) -> WorkerBench:
        """A worker that owns CUDA device ``device``. Raises DeviceError, one line, without one or without torch."""
        bench = WorkerBench("tileforge.verify.start:backend", {"device": f"cuda:{device}"}, timeouts=TIMEOUTS)
        bench.start()
        return bench

    def run(self, specs: Iterable[KernelSpec], on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
        """Rows in the order in which they were found, and hands each to ``on_row``.

        A kernel whose row the table has, judged by today's cases, is not built or run again unless ``again``.
        """
        rows: list[Row] = []

        def found(row: Row) -> None:
            self.table.add(row)
            rows.append(row)
            on_row(row)

        def done(outcome: BuildOutcome) -> None:
            found(self.judge(outcome))

        todo: list[KernelSpec] = []
        for spec in dict.fromkeys(specs):
            known = None if self.again else self._known(spec)
            if known is None:
                todo.append(spec)
            else:
                rows.append(known)
                on_row(known)
        self.builder.build(todo, done)
        return rows

    def _known(self, spec: KernelSpec) -> Row | None:
        if self.builder.cutlass is None or self.builder.compiler is None:
            kernel = self.builder.lookup(spec)
            return self.table.known(kernel.key) if kernel else None
        return self.table.known(self.builder.key(spec))

    def judge(self, outcome: BuildOutcome) -> Row:
        """The row of one built kernel, or of one that could not be built."""
        spec, kernel = outcome.spec, outcome.kernel
        cutlass = (kernel.cutlass if kernel else "") or self.builder.cutlass_version or ""
        fields: dict[str, Any] = {
            "arch": spec.arch,
            "format": spec.format,
            "out": spec.out,
            "tactic": spec.tactic.kernel_id,
            "how": "emulated" if spec.emulated else "native",
            "cutlass": cutlass,
            "verdict": _verdict(spec, cutlass),
            "date": date.today().isoformat(),
            "build_s": round(outcome.seconds, 1),
        }
        if kernel is None:
            return Row(**fields, status=COMPILE_FAILED, message=outcome.message)
        fields |= {"stages": kernel.info["stages"], "smem_bytes": kernel.info["smem_bytes"], "key": kernel.key}
        fields["build_s"] = round(float(kernel.meta.get("seconds", outcome.seconds)), 1)
        return Row(**fields, **self._verified(kernel))

    def _verified(self, kernel: Kernel) -> dict[str, Any]:
        device = {"device": _device(self.bench.facts())}
        wanted = [each for each in cases(kernel.info["k_multiple"], kernel.info["n_multiple"]) if self.only(each)]
        spec = kernel.spec
        said = self.bench.call("verify", path=kernel.path, format=spec.format, out=spec.out, cases=wanted)
        if isinstance(said, Lost):
            status = HUNG if said.hung else CRASHED
            return device | {"status": status, "message": f"{said.phase or 'idle'}: {said.message}"}
        faults: dict[str, bool] = said["faults"]
        told = {"faults": len(faults), "noticed": sum(faults.values())}
        told |= {name: said[name] for name in ("cases", "cases_right", "values", "mismatches", "signed_zeros")}
        told |= {"over_bound": said["over_bound"], "worst_ratio": round(said["worst_ratio"], 4)}
        status, message = _status(said)
        return device | told | {"seconds": said["seconds"], "status": status, "message": message}


def _device(facts: Mapping[str, Any]) -> str:
    driver = facts.get("driver")
    return f"{facts['name']}, driver {driver}" if driver else str(facts["name"])


def _status(said: dict[str, Any]) -> tuple[str, str]:
    failed: Sequence[str] = said["failed"]
    if failed:
        more = f" (and {len(failed) - _TOLD} more cases)" if len(failed) > _TOLD else ""
        stopped = f"{said['stopped']}; " if said["stopped"] else ""
        return WRONG, stopped + "; ".join(failed[:_TOLD]) + more
    if said["stopped"]:
        return CRASHED if said["dead"] else REFUSED, said["stopped"]
    unseen = [name for name, noticed in said["faults"].items() if not noticed]
    if unseen or not said["faults"]:
        return BLIND, f"not noticed: {', '.join(unseen)}" if unseen else "no fault was planted"
    return RIGHT, ""


def _verdict(spec: KernelSpec, cutlass: str) -> str:
    """What the rules say: ``fits``, or the kind and reason of a refusal."""
    found = legality.check(spec.tactic, arch=get_arch(spec.arch), format=spec.format, out=spec.out, cutlass=cutlass)
    return found.kind if found else f"{found.kind}: {found.reason}"
