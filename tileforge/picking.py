"""The pick: serving code asks which tactic to run, and gets one in a few microseconds, or a miss that says why.

    choice = tileforge.pick(problem)          # the GPU is detected once
    if choice:
        run(choice.tactic)
    else:
        print(choice.reason, choice.command)  # `tileforge tune --gpu ...` creates what is missing

The user's database is asked first, then the one that ships with tileforge; the first hit wins and says which. Two
things do not count as a first hit while a later database has better: a prediction where the later one measured, and
an extrapolation where the later one has a bucket. Files are read once; :meth:`Picker.reload` reads them again.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tileforge import paths
from tileforge.db.key import Key
from tileforge.db.lookup import NOTHING_TO_LAUNCH, Pick, Table, command_for, with_command
from tileforge.db.store import TuningDB
from tileforge.errors import DeviceError, InputError
from tileforge.problem import GroupedGemm

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu

#: Misses that a picker remembers; serving asks for few distinct problems, and a loop over sizes must not fill memory.
MOST_MISSES = 4096

Database = TuningDB | str | os.PathLike[str]


class Picker:
    """Look-ups through layered databases, with the tables and the detected GPU kept. Threads may share it.

    ``databases``: (name, database) in the order in which they are asked. ``gpu``: SKU, name or :class:`Gpu` that
    picks are for unless they say otherwise; None detects it at the first pick. ``environment``: what is known about
    here (``driver``, ``cutlass_digest``, ``kernels`` ...); what is not given is not compared.

    Counters: ``hits``, ``misses``, ``extrapolations`` (hits among them).
    """

    def __init__(
        self,
        databases: Sequence[tuple[str, TuningDB]],
        gpu: str | Gpu | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        family: str = "tileforge",
        execution: str = "graph",
    ) -> None:
        self.databases = tuple(databases)
        self.hits = self.misses = self.extrapolations = 0
        self._gpu = gpu
        self._environment = dict(environment or {})
        self._variant = {"family": family, "execution": execution}
        self._mutex = threading.RLock()
        self._skus: dict[str | None, str] = {}
        self._drivers: dict[str, str] = {}
        self._undetected = ""
        self._tables: dict[tuple[str, str, str, int, int, int], tuple[Table, ...]] = {}
        self._told: set[object] = set()
        self._misses: dict[tuple[str, GroupedGemm], Pick] = {}

    def pick(self, problem: GroupedGemm, gpu: str | Gpu | None = None) -> Pick:
        """What to run for ``problem``. Raises InputError for a ``gpu`` that nobody knows; a GPU that cannot be
        detected is a miss that says so."""
        if problem.m == 0:
            return NOTHING_TO_LAUNCH
        name = gpu if gpu is None or isinstance(gpu, str) else _sku_of(gpu)
        sku = self._skus.get(name)
        if sku is None:
            try:
                sku = self._resolve(name)
            except DeviceError as error:
                return self._count(with_command(Pick(reason=str(error)), problem, ""), problem, "")
        tables = self._tables.get((sku, problem.format, problem.out, problem.n, problem.k, problem.groups))
        if tables is None:
            tables = self._load(sku, problem)
        best, weakest = None, 5
        for table in tables:
            found = table.find(problem)
            if found:
                weakness = 2 * found.extrapolated + (found.provenance == "predicted")
            else:  # a file that says why not is worth more than no file
                weakness = 4 if found.source is None else 3
            if weakness < weakest:
                best, weakest = found, weakness
                if not weakness:
                    break
        if best is None:
            best = Pick(reason="no database to look in")
        return self._count(best if best else self._missed(best, problem, sku), problem, sku)

    def reload(self) -> None:
        """Reads the files again from the next pick on; picks that run meanwhile get the old answer or the new one."""
        with self._mutex:
            for _, database in self.databases:
                database.reload()
            self._tables = {}
            self._told = set()
            self._undetected = ""

    def _missed(self, miss: Pick, problem: GroupedGemm, sku: str) -> Pick:
        """``miss`` with its command, made once per problem: serving may miss at every call."""
        told = self._misses.get((sku, problem))
        if told is None or told.reason != miss.reason:
            if len(self._misses) >= MOST_MISSES:
                self._misses = {}
            told = self._misses[sku, problem] = with_command(miss, problem, sku)
        return told

    def _count(self, pick: Pick, problem: GroupedGemm, sku: str) -> Pick:
        if pick and not pick.extrapolated:
            with self._mutex:
                self.hits += 1
            return pick
        once = (sku, problem.format, problem.out, problem.n, problem.k, problem.groups, bool(pick), pick.source)
        with self._mutex:
            self.hits += bool(pick)
            self.misses += not pick
            self.extrapolations += pick.extrapolated
            told = once in self._told
            self._told.add(once)
        if not told:
            what = f"M={problem.m} of {problem.key}: {pick.reason}" if pick else pick.reason
            import logging  # here, because it costs more than all the rest of this module

            mend = pick.command or (command_for(problem, sku) if pick else "")
            logging.getLogger(__name__).warning("%s%s", what, f"; to record it: {mend}" if mend else "")
        return pick

    def _load(self, sku: str, problem: GroupedGemm) -> tuple[Table, ...]:
        with self._mutex:
            key = Key.of(problem, sku, **self._variant)
            here = {"driver": self._drivers[sku]} if sku in self._drivers else {}
            here |= self._environment
            tables = tuple(db.table(key, here, layer) for layer, db in self.databases)
            self._tables[(sku, *key.sizes)] = tables
            return tables

    def _resolve(self, name: str | None) -> str:
        """The SKU that ``name`` means; None is the picker's own GPU or the one detected here."""
        with self._mutex:
            if name is not None:
                sku = self._named(name)
            elif self._gpu is not None:
                sku = self._named(self._gpu if isinstance(self._gpu, str) else self._gpu.sku)
            else:
                sku = self._detect()
            self._skus[name] = sku
            return sku

    def _detect(self) -> str:
        if self._undetected:
            raise DeviceError(self._undetected)  # asked once: looking again would cost every pick a process
        try:
            gpu, driver = detect_gpu()
        except DeviceError as error:
            self._undetected = str(error)
            raise
        if driver:
            self._drivers[gpu.sku] = driver
        return str(gpu.sku)

    def _named(self, name: str) -> str:
        from tileforge.arch.gpus import GPUS, match_gpu

        if name in GPUS:
            return name
        if (gpu := match_gpu(name)) is not None:
            return str(gpu.sku)
        if any(name in db.gpus() for _, db in self.databases):
            return name
        raise InputError(f"unknown GPU {name!r}: use one of {', '.join(GPUS)}, or a folder of the database")


def _sku_of(gpu: object) -> str:
    sku = getattr(gpu, "sku", None)
    if not isinstance(sku, str):
        raise InputError(f"gpu = {gpu!r} is not a GPU: give a SKU such as 'rtx_pro_6000', or None for the one here")
    return sku


def pick(
    problem: GroupedGemm,
    gpu: str | Gpu | None = None,
    db: Database | Sequence[Database] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> Pick:
    """The tactic to run for ``problem``, or a falsy :class:`Pick` with the reason and the command that would help.

    ``gpu``: SKU (``h200``), marketing name or :class:`~tileforge.arch.gpus.Gpu`; None detects it once. ``db``: a
    database or several to ask in order; None asks the user's (:func:`tileforge.paths.database_dir`), then the
    shipped one. ``environment``: what is known about here, for staleness. With ``db`` or ``environment`` given, each
    call reads the files it needs; a hot path that wants these keeps a :class:`Picker`.
    """
    if db is None and environment is None:
        return default_picker().pick(problem, gpu)
    return Picker(_default_layers() if db is None else _layers(db), environment=environment).pick(problem, gpu)


def default_picker() -> Picker:
    """The picker that :func:`pick` uses, one per pair of directories: its counters, and its ``reload``."""
    return _picker(paths.variable("TILEFORGE_DB"), os.getcwd())


@functools.cache
def _picker(named: str | None, working_directory: str) -> Picker:
    """One picker for what ``TILEFORGE_DB`` and the working directory say; both decide which database is the user's."""
    return Picker(_default_layers())


def _default_layers() -> list[tuple[str, TuningDB]]:
    user, shipped = paths.database_dir().absolute(), paths.shipped_database_dir().absolute()
    layers = [] if user == shipped else [("user", _opened(user))]
    return [*layers, ("shipped", _opened(shipped))]


def _layers(databases: Database | Sequence[Database]) -> list[tuple[str, TuningDB]]:
    if isinstance(databases, TuningDB | str | os.PathLike):
        databases = [databases]
    opened = [db if isinstance(db, TuningDB) else _opened(Path(db)) for db in databases]
    return [(str(db.path), db) for db in opened]


def _opened(path: Path) -> TuningDB:
    return TuningDB(path, read_only=True)


def detect_gpu() -> tuple[Gpu, str]:
    """The GPU here and its driver's version (empty when not known). Raises DeviceError that says what to pass.

    torch is asked only where it is imported and has its CUDA context already, because making one would break
    processes that fork later; else ``nvidia-smi`` is run, once.
    """
    from tileforge.arch.gpus import match_gpu

    seen = _from_torch() or _from_nvidia_smi()
    if seen is None:
        raise DeviceError("no GPU found here: pass gpu=, for example gpu='rtx_pro_6000'")
    name, sms, driver = seen
    gpu = match_gpu(name, sms)
    if gpu is None:
        counted = "" if sms is None else f" with {sms} SMs"
        raise DeviceError(f"the GPU here, {name!r}{counted}, is none that tileforge knows: pass gpu= with one it knows")
    return gpu, driver


def _from_torch() -> tuple[str, int | None, str] | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return properties.name, properties.multi_processor_count, ""


def _from_nvidia_smi() -> tuple[str, int | None, str] | None:
    import subprocess

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = visible.split(",")[0].strip() if visible is not None else "0"
    if first in ("", "-1", "NoDevFiles"):
        return None
    query = ["nvidia-smi", "-i", first, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    name, _, driver = answer.strip().partition("\n")[0].rpartition(",")
    return (name.strip(), None, driver.strip()) if name else None


__all__ = ["Pick", "Picker", "default_picker", "detect_gpu", "pick"]
