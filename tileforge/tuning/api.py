"""Tune: problems in, a tuning database out. Measured where there is a GPU, else predicted, and each says which.

    results = tileforge.tune([GroupedGemm(512, 4096, 6144, 32, "nvfp4")])

enumerate and prune -> rank by prediction -> build, search, finals (or: the compiler confirms the leaders) -> records.
Importing this loads neither optuna, torch nor numpy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileforge.errors import InputError
from tileforge.problem import GroupedGemm

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu
    from tileforge.db.store import TuningDB
    from tileforge.measure.protocol import Bench
    from tileforge.search import Budget, OnEvent
    from tileforge.toolchain.compiler import Compiler
    from tileforge.toolchain.cutlass import Cutlass
    from tileforge.tuning.result import TuneResult

TIMERS = ("auto", "gpu", "predict", "fake")
CANDIDATES = ("menu", "all")
#: What one problem may try when nobody says otherwise: the default, the leaders, and some that the sampler chooses.
DEFAULT_TRIALS = 40


def tune(
    problems: GroupedGemm | Iterable[GroupedGemm],
    *,
    gpu: str | Gpu | None = None,
    timer: str = "auto",
    budget: Budget | str | int | None = DEFAULT_TRIALS,
    db: TuningDB | str | os.PathLike[str] | None = None,
    save: bool = True,
    cutlass: Cutlass | str | os.PathLike[str] | None = None,
    candidates: str = "menu",
    bench: Bench | None = None,
    builder: Any = None,
    compiler: Compiler | None = None,
    journals: Path | None = None,
    confirm: bool = True,
    samples: int = 7,
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> list[TuneResult]:
    """Finds the tactic for each of ``problems`` and records it.

    Parameters
    ----------
    gpu: SKU, marketing name or :class:`~tileforge.arch.gpus.Gpu` to tune for. None: the one here; where there is
        none (or it has no kernels for the format), a prediction for the usual GPU of the format.
    timer: ``gpu`` measures, ``predict`` does not, ``fake`` measures a made-up device, ``auto`` measures if it can.
    budget: of each problem, see :class:`tileforge.search.Budget`; ``"all"`` measures every candidate.
    db: the database to write, default :func:`tileforge.paths.database_dir`. ``save=False`` writes nothing. Times of
        a fake device are recorded only where ``db`` is given.
    cutlass: headers to use: a :class:`Cutlass`, a version that is installed, or a directory.
    candidates: what is measured: ``menu`` (:func:`tileforge.space.menu`) or ``all`` legal tactics.
    bench, builder, compiler: used instead of the GPU here, its builder, the compiler found.
    journals: where studies are kept until they end, so that a killed run resumes. Default: in tileforge's cache.
    confirm: repeat the finals in a fresh process and record only what both agree on; of predictions, ask the compiler
        about the leaders, where there is one.

    Returns one result per problem, in order; after Ctrl-C those that there are. Each problem is saved when it ends.
    Raises InputError, DeviceError, ToolchainError, BuildError, DatabaseError, NoLegalTacticError; before anything is
    measured where that can be known.
    """
    from tileforge.db import TuningDB
    from tileforge.toolchain.cutlass import Cutlass
    from tileforge.tuning.job import Job

    if not isinstance(problems, GroupedGemm | Iterable):
        raise InputError(f"{problems!r} is not a problem: give GroupedGemm objects")
    wanted = [problems] if isinstance(problems, GroupedGemm) else list(problems)
    for problem in wanted:
        if not isinstance(problem, GroupedGemm):
            raise InputError(f"{problem!r} is not a problem: give GroupedGemm objects")
    for name, value, known in (("timer", timer, TIMERS), ("candidates", candidates, CANDIDATES)):
        if value not in known:
            raise InputError(f"unknown {name} {value!r}: use one of {', '.join(known)}")
    for name, number, least, most in (("samples", samples, 1, 1000), ("seed", seed, 0, 2**32 - 1)):
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise InputError(f"{name} = {number!r} is not a whole number from {least} to {most}")
    for name, path in (("db", db), ("cutlass", cutlass), ("journals", journals)):
        if path is not None and not isinstance(path, str | os.PathLike | TuningDB | Cutlass):
            raise InputError(f"{name} = {path!r} is not a path")
    job = Job(
        gpu=gpu, timer=timer, budget=budget, db=db, save=save, cutlass=cutlass, candidates=candidates, bench=bench,
        builder=builder, compiler=compiler,
        journals=None if journals is None else Path(journals), confirm=confirm, samples=samples, seed=seed,
        on_event=on_event,
    )  # fmt: skip
    try:
        return job.run(wanted)
    finally:
        job.close()
