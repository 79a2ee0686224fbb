"""The sampler's side of a search: an Optuna study whose trials are tactics that were really measured.

Fields are categorical, one parameter each, so that TPE learns "small row tiles are good" across schedules and
swaps; an opaque tactic id would teach it nothing about the next one. Tile sizes are named by what they run along
(``rows``, ``columns``) rather than by M and N, because swap_ab exchanges those. Most combinations are illegal:
TPE's wish is therefore drawn outside of any trial, moved to the nearest survivor, and only then becomes a trial
(enqueued and asked), so that every trial's parameters are those that were measured.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileforge.measure.result import NOT_MEASURED, OUT_OF_MEMORY, Measurement
from tileforge.search.scratch import drop_torn_line, writing
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    import optuna

#: Trials before TPE has an opinion; the default and the predicted leaders are among them.
STARTUP = 8
#: Failures that say nothing about the tactic: TPE must not learn from them.
_BLAMELESS = (OUT_OF_MEMORY, NOT_MEASURED)


def _good(trials: int) -> int:
    """How many of the best trials TPE learns from: 30 %, at least 4. Optuna's own 10 % is one or two trials of the
    few dozen that a search has, and it then tries that one's neighbours for long. (Simulated H200 problems with
    8 % errors per field of the model: after 40 trials 0.04 % from the best on average, against 1.2 %; 2026-11-30.)
    """
    return max(4, math.ceil(0.3 * trials))


Params = dict[str, str | int | bool]


def params_of(tactic: Tactic) -> Params:
    """A tactic as the study's parameters; injective."""
    m, n, k = tactic.tile
    epilogue = tactic.epilogue_tile
    return {
        "rows": n if tactic.swap_ab else m,
        "columns": m if tactic.swap_ab else n,
        "depth": k,
        "swap": tactic.swap_ab,
        "cluster": f"{tactic.cluster[0]}x{tactic.cluster[1]}",
        "schedule": tactic.schedule,
        "stages": tactic.stages or 0,
        "epilogue": f"{epilogue[0]}x{epilogue[1]}" if epilogue else "auto",
        "raster": tactic.raster,
        "swizzle": tactic.swizzle,
    }


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """How far apart two settings are: doublings of sizes count by how many, other fields one, run-time ones less."""
    total = 0.0
    for name, value in a.items():
        other = b[name]
        if value == other:
            continue
        if name in ("rows", "columns", "depth") and value and other:
            total += abs(math.log2(value / other))
        else:
            total += 0.5 if name in ("raster", "swizzle", "epilogue", "stages") else 1.0
    return total


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its log lines and warnings of experimental features; the user's own settings come back."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _journal(path: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal in ``path``, without its fsync for every one of the dozen lines of a trial (7 ms each on a
    busy disk, while the GPU waits). A killed process loses nothing of that; measurements are synced elsewhere.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    drop_torn_line(path)
    # A run that was killed while it held the lock leaves it behind: taken over after five seconds.
    lock = JournalFileOpenLock(str(path), grace_period=5)

    class Unsynced(JournalFileBackend):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            lock.acquire()
            try:
                with writing(path), path.open("ab") as file:
                    file.write(b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs))
            finally:
                lock.release()

    return optuna.storages.JournalStorage(Unsynced(str(path), lock))


class TacticStudy:
    """One problem's study. ``tactics`` are the survivors, best predicted first.

    ``journal`` None keeps it in memory; a file lets a killed run go on. Studies of several problems may share it.
    """

    def __init__(self, tactics: Sequence[Tactic], *, name: str, journal: Path | None = None, seed: int = 0) -> None:
        import optuna

        self._params = {tactic: params_of(tactic) for tactic in tactics}
        self._by_params: dict[tuple[Any, ...], Tactic] = {
            tuple(params.values()): tactic for tactic, params in self._params.items()
        }
        fields = next(iter(self._params.values()))
        choices = {field: {params[field] for params in self._params.values()} for field in fields}
        self._space: dict[str, optuna.distributions.BaseDistribution] = {
            field: optuna.distributions.CategoricalDistribution(
                sorted(values, key=lambda value: (str(type(value)), value))
            )
            for field, values in choices.items()
        }
        with _quiet():
            self._sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, n_startup_trials=STARTUP, constant_liar=False, gamma=_good
            )
            storage: optuna.storages.BaseStorage = optuna.storages.InMemoryStorage()
            if journal is not None:
                storage = _journal(journal)
            self._study = optuna.create_study(
                storage=storage, sampler=self._sampler, study_name=name, direction="minimize", load_if_exists=True
            )

    def recover(self, measured: Mapping[str, Measurement]) -> list[Tactic]:
        """Makes the study agree with what is on disk, after a run that may have been killed.

        A trial that was running is told the result if its measurement was written, else it has failed and its
        tactic is handed back, to be queued again. Measurements that the study never heard of are told.
        """
        from optuna.trial import TrialState

        again, known = [], set()
        with _quiet():
            for trial in self._study.get_trials(deepcopy=False):
                if trial.state == TrialState.WAITING:  # killed between enqueuing and asking: ask takes it off
                    self._study.tell(self._study.ask(self._space), state=TrialState.FAIL)
                    continue
                tactic = self._by_params.get(tuple(trial.params.get(field) for field in self._space))
                if trial.state != TrialState.RUNNING:
                    known.add(tactic)
                elif tactic is not None and tactic.id in measured:
                    self._tell(trial.number, measured[tactic.id])
                    known.add(tactic)
                else:
                    self._study.tell(trial.number, state=TrialState.FAIL)
                    if tactic is not None:
                        again.append(tactic)
            for tactic in self._params:
                if tactic not in known and tactic.id in measured:
                    self._tell(self.start(tactic), measured[tactic.id])
        return list(dict.fromkeys(again))

    def start(self, tactic: Tactic) -> int:
        """Opens a trial for ``tactic``; returns its number."""
        with _quiet():
            self._study.enqueue_trial(self._params[tactic])
            return self._study.ask(self._space).number

    def tell(self, number: int, measurement: Measurement) -> None:
        with _quiet():
            self._tell(number, measurement)

    def _tell(self, number: int, measurement: Measurement) -> None:
        from optuna.trial import TrialState

        if measurement.ok:
            self._study.tell(number, measurement.median_us)
            return
        # Pruned trials teach TPE that the neighbourhood is bad; failed ones are left out of its count. Neither
        # has a value: a failure is a class, kept with the measurement.
        blameless = measurement.status in _BLAMELESS
        self._study.tell(number, state=TrialState.FAIL if blameless else TrialState.PRUNED)

    def propose(
        self, measured: Callable[[Tactic], bool], repeatable: Callable[[Tactic], bool], cost: Callable[[Tactic], float]
    ) -> Tactic | None:
        """What to measure next; None when nothing is left.

        TPE's wish itself when it is a survivor that is new, or one that was measured and is ``repeatable`` (worth
        more samples); else the nearest new survivor, ``cost`` (0 to 1) added to its distance, the better
        predicted first. Before TPE has an opinion: the best predicted new one.
        """
        import optuna

        new = [tactic for tactic in self._params if not measured(tactic)]
        with _quiet():
            space = {name: choice for name, choice in self._space.items() if not choice.single()}
            probe = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
            wish: dict[str, Any] = self._sampler.sample_relative(self._study, probe, space) if space else {}
        if not wish:
            return new[0] if new else None
        fixed = {name: choice.choices[0] for name, choice in self._space.items() if name not in wish}  # type: ignore[attr-defined]
        wish = {name: {**fixed, **wish}[name] for name in self._space}
        wished = self._by_params.get(tuple(wish.values()))
        if wished is not None and (not measured(wished) or repeatable(wished)):
            return wished
        if not new:
            return None
        return min(new, key=lambda tactic: distance(wish, self._params[tactic]) + cost(tactic))

    @property
    def told(self) -> int:
        """Trials that have ended with a result or with a failure of the tactic's own."""
        from optuna.trial import TrialState

        return len(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))
