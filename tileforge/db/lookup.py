"""The look-up: M rounds up to a bucket, and the answer says what it stands on.

A record answers for M up to its own bucket and above the record before it. Records of the problem's own routing are
asked first; where none reaches M, those of other routings are. Above the largest bucket the largest record answers,
flagged as extrapolated. Every tactic passes :func:`tileforge.legality.check` before it is handed out; one that does
not fit this GPU is a miss with its reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileforge.db.environment import ANY, compare_environment, is_known
from tileforge.db.key import GpuFacts, Key
from tileforge.db.record import Record
from tileforge.errors import TileforgeError
from tileforge.problem import GroupedGemm
from tileforge.routing import Routing
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.db.store import Refusal

HIT, MISS, NOTHING = "hit", "miss", "nothing to launch"


@dataclass(frozen=True)
class Pick:
    """The answer of a look-up; truthy when there is a tactic to run.

    ``outcome``: ``hit``, ``miss``, or ``nothing to launch`` (M = 0). ``reason``: one line for people, always there.
    ``source``: the file that answered. ``layer``: the database that answered (``user``, ``shipped`` or its path).
    ``stale``: one sentence per field of the environment that differs from here; such a pick is still usable.
    ``extrapolated``: M is above every bucket. ``command``: for a miss, what would create the record.
    """

    tactic: Tactic | None = None
    outcome: str = MISS
    reason: str = ""
    source: Path | None = None
    layer: str = ""
    record: Record | None = field(default=None, repr=False)
    stale: tuple[str, ...] = ()
    extrapolated: bool = False
    command: str = ""

    def __bool__(self) -> bool:
        return self.tactic is not None

    @property
    def provenance(self) -> str:
        """``measured``, ``transferred`` or ``predicted``; empty without a record."""
        return self.record.provenance if self.record else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "tactic": self.tactic.as_dict() if self.tactic else None,
            "tactic_id": self.tactic.id if self.tactic else None,
            "provenance": self.provenance or None,
            "reason": self.reason,
            "source": str(self.source) if self.source else None,
            "layer": self.layer or None,
            "stale": list(self.stale),
            "extrapolated": self.extrapolated,
            "command": self.command or None,
            "record": self.record.as_dict() if self.record else None,
        }


NOTHING_TO_LAUNCH = Pick(outcome=NOTHING, reason="nothing to launch: M = 0")


def command_for(problem: GroupedGemm, gpu: str) -> str:
    """The command that would create the record that ``problem`` misses. ``gpu`` empty: the one where it is run."""
    command = (
        f"tileforge tune {f'--gpu {gpu} ' if gpu else ''}--m {problem.m} --n {problem.n} --k {problem.k} "
        f"--groups {problem.groups} --format {problem.format}"
    )
    if problem.out != "bf16":
        command += f" --out {problem.out}"
    if (routing := str(problem.routing)) != "balanced":
        command += f" --routing {routing}"
    return command + (f" --seed {problem.seed}" if problem.seed else "")


def with_command(pick: Pick, problem: GroupedGemm, gpu: str) -> Pick:
    """``pick``, a miss of ``problem``, with the command that would mend it, or why none can."""
    from tileforge.arch import get_arch
    from tileforge.arch.gpus import GPUS

    known = GPUS.get(gpu)
    if known is not None and problem.format not in get_arch(known.arch).formats:
        return replace(pick, reason=f"{known.name} ({known.arch}) has no {problem.format} kernels", command="")
    return replace(pick, command=command_for(problem, gpu))


class _Buckets:
    """Records in order of M, one per M, with the picks made from them so far."""

    def __init__(self, records: Iterable[Record]) -> None:
        by_m: dict[int, Record] = {}
        for record in records:
            by_m.setdefault(record.m, record)
        self.ms = sorted(by_m)
        self.records = [by_m[m] for m in self.ms]
        self.picks: list[Pick | None] = [None] * (len(self.ms) + 1)  # the last one: beyond the largest bucket


class Table:
    """The records of one key, ready to be asked. Immutable but for a cache of answers; threads may share it.

    ``environment`` holds what is known about here, as far as it is known.
    """

    def __init__(
        self,
        key: Key,
        records: Iterable[Record],
        source: Path,
        refusal: Refusal | None = None,
        environment: Mapping[str, str] | None = None,
        layer: str = "",
    ) -> None:
        self.key, self.source = key, source
        self.environment = dict(environment or {})
        self.layer = layer or str(source.parent.parent)
        by_routing: dict[Routing, list[Record]] = {}
        for record in records:
            by_routing.setdefault(record.routing, []).append(record)
        # Of several routings at one M, balanced speaks for the others, then uniform, then by name.
        order = sorted(by_routing, key=lambda r: (r.kind != "balanced", r.kind != "uniform", str(r)))
        self._own: dict[object, _Buckets] = {routing: _Buckets(found) for routing, found in by_routing.items()}
        if refusal is None:
            self._empty = Pick(reason=f"no record for {key.path.removesuffix('.yaml')}")
        else:
            self._empty = Pick(reason=f"its file was refused: {refusal}", source=source)
        self._any = _Buckets(record for routing in order for record in by_routing[routing])

    def find(self, problem: GroupedGemm) -> Pick:
        """What to run for ``problem``, whose key is this table's. A miss comes without its command."""
        m = problem.m
        if m == 0:
            return NOTHING_TO_LAUNCH
        buckets = self._own.get(problem.routing)
        if buckets is None or (m > buckets.ms[-1] and m <= self._any.ms[-1]):
            buckets = self._any
            if not buckets.ms:
                return self._empty
        index = bisect_left(buckets.ms, m)
        found = buckets.picks[index]
        return self._make(buckets, index) if found is None else found

    def _make(self, buckets: _Buckets, index: int) -> Pick:
        """The pick of bucket ``index`` (one past the last: beyond every bucket), kept for the next time."""
        extrapolated = index == len(buckets.ms)
        record = buckets.records[index - extrapolated]
        illegal = _objection(record)
        if illegal:
            reason = f"the record of {record.tactic.id} does not fit here: {illegal} ({self.source})"
            pick = Pick(reason=reason, source=self.source)
        else:
            over = f"above {buckets.ms[-1]}" if extrapolated else f"{buckets.ms[index - 1] + 1 if index else 1}"
            span = over if extrapolated else f"{over} to {record.m}"
            pick = Pick(
                record.tactic,
                HIT,
                f"{record.provenance} at M={record.m} ({record.rows_per_group:g} rows/group, {record.routing}), "
                f"{'extrapolated to' if extrapolated else 'answers'} M {span}",
                self.source,
                self.layer,
                record,
                compare_environment(record.environment, self.environment).messages,
                extrapolated,
            )
        buckets.picks[index] = pick
        return pick


def _objection(record: Record) -> str:
    """Why the record's tactic cannot run on the GPU of that name, in the words of the one validator; empty when it can.

    A verdict of ``unknown`` is no objection: nothing says that it does not fit.
    """
    from tileforge import legality
    from tileforge.arch import get_arch
    from tileforge.arch.gpus import GPUS
    from tileforge.verdict import UNKNOWN

    key, gpu = record.key, GPUS.get(record.key.gpu)
    if gpu is not None and (differences := GpuFacts.of(gpu).differences(record.gpu)):
        return f"its file is of a GPU with other facts than {gpu.name} ({'; '.join(differences)})"
    cutlass = record.environment.get("cutlass")
    known = {"cutlass": cutlass} if cutlass is not None and is_known(cutlass) and cutlass != ANY else {}
    try:
        arch = get_arch(gpu.arch if gpu else f"sm{record.gpu.sm}")
        verdict = legality.check(
            record.tactic, arch=arch, format=key.format, out=key.out, problem=record.problem, **known
        )
    except TileforgeError as error:
        return str(error)
    return "" if verdict or verdict.kind == UNKNOWN else verdict.message
