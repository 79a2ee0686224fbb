"""The tactic: the *chosen* fields of a kernel, frozen, with an id that people can read and that parses back.

``128x64x256_c1x1_coop_s3_e64x32_swap_rm_w4``: tile MNK in elements (never packed bytes), cluster, schedule,
stages (left out: automatic), epilogue tile (left out: automatic), swap_ab; then the run-time fields, raster
order (``rm``/``rn``, left out: heuristic) and max swizzle (``w4``, left out: 1).

Tile M and N are the kernel's own. With ``swap`` the kernel's M runs over the problem's N (the weights) and its
N over the rows of a group, so a small tile N covers few rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tileforge.errors import InputError

SCHEDULES = {"cooperative": "coop", "pingpong": "pp"}
RASTERS = {"heuristic": "", "m": "rm", "n": "rn"}
SWIZZLES = (1, 2, 4, 8)

_ID = re.compile(
    r"(?P<m>\d{1,6})x(?P<n>\d{1,6})x(?P<k>\d{1,6})(_c(?P<cm>\d{1,6})x(?P<cn>\d{1,6}))?"
    r"(_(?P<schedule>coop|pp|cooperative|pingpong))?(_s(?P<stages>\d{1,6}|auto))?"
    r"(_e((?P<em>\d{1,6})x(?P<en>\d{1,6})|auto))?(?P<swap>_swap)?(_r(?P<raster>[mn]))?(_w(?P<swizzle>\d{1,6}))?"
)
_SCHEDULE_OF = {short: full for full, short in SCHEDULES.items()} | {full: full for full in SCHEDULES}


@dataclass(frozen=True, slots=True)
class Tactic:
    """One way to run a grouped GEMM. Compile-time fields need a new kernel; ``raster`` and ``swizzle`` do not.

    ``stages`` None is automatic (as many as CUTLASS believes fit), ``epilogue_tile`` None is CUTLASS's choice.
    A Tactic can be any combination that can be written down; whether it is legal is :mod:`tileforge.legality`'s.
    """

    tile: tuple[int, int, int]
    cluster: tuple[int, int] = (1, 1)
    schedule: str = "cooperative"
    stages: int | None = None
    epilogue_tile: tuple[int, int] | None = None
    swap_ab: bool = False
    raster: str = "heuristic"
    swizzle: int = 1

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise InputError(f"unknown schedule {self.schedule!r}: use one of {', '.join(SCHEDULES)}")
        if self.raster not in RASTERS:
            raise InputError(f"unknown raster order {self.raster!r}: use one of {', '.join(RASTERS)}")
        if self.stages == 0:
            raise InputError("0 stages is not a number of stages: leave it out for the automatic count")
        if not isinstance(self.swap_ab, bool):
            raise InputError(f"swap_ab {self.swap_ab!r} is neither true nor false")
        for field, sizes, count in (
            ("tile", self.tile, 3),
            ("cluster", self.cluster, 2),
            ("epilogue tile", self.epilogue_tile or (1, 1), 2),
            ("stages", (self.stages or 1,), 1),
            ("swizzle", (self.swizzle,), 1),
        ):
            whole = isinstance(sizes, tuple) and all(type(size) is int and 1 <= size < 10**6 for size in sizes)
            if not whole or len(sizes) != count:
                raise InputError(f"{field} {sizes!r} is not {count} whole numbers of 1 and more")

    @property
    def kernel_id(self) -> str:
        """The compile-time fields: what names a kernel."""
        parts = [
            "x".join(map(str, self.tile)),
            f"c{self.cluster[0]}x{self.cluster[1]}",
            SCHEDULES[self.schedule],
        ]
        if self.stages is not None:
            parts.append(f"s{self.stages}")
        if self.epilogue_tile is not None:
            parts.append(f"e{self.epilogue_tile[0]}x{self.epilogue_tile[1]}")
        if self.swap_ab:
            parts.append("swap")
        return "_".join(parts)

    @property
    def id(self) -> str:
        runtime = [RASTERS[self.raster]] if RASTERS[self.raster] else []
        if self.swizzle != 1:
            runtime.append(f"w{self.swizzle}")
        return "_".join([self.kernel_id, *runtime])

    def __str__(self) -> str:
        return self.id

    @classmethod
    def parse(cls, text: str) -> Tactic:
        """Reads an id back; fields left out take their defaults, and spaces may stand for underscores.

        Raises InputError with an example when the text is not a tactic.
        """
        found = _ID.fullmatch("_".join(str(text).split()))
        if found is None:
            raise InputError(f"{text!r} is not a tactic: write it as 128x64x256_c1x1_coop_s3_e64x32_swap_rm_w4")
        stages, em = found["stages"], found["em"]
        return cls(
            tile=(int(found["m"]), int(found["n"]), int(found["k"])),
            cluster=(int(found["cm"] or 1), int(found["cn"] or 1)),
            schedule=_SCHEDULE_OF[found["schedule"] or "coop"],
            stages=None if stages in (None, "auto") else int(stages),
            epilogue_tile=(int(em), int(found["en"])) if em else None,
            swap_ab=found["swap"] is not None,
            raster={"m": "m", "n": "n"}.get(found["raster"] or "", "heuristic"),
            swizzle=int(found["swizzle"] or 1),
        )

    def compile_time(self) -> Tactic:
        """The same kernel with the run-time fields at their defaults."""
        return replace(self, raster="heuristic", swizzle=1)

    def as_dict(self) -> dict[str, Any]:
        """The fields as the database writes them."""
        return {
            "tile": list(self.tile),
            "cluster": list(self.cluster),
            "schedule": self.schedule,
            "stages": "auto" if self.stages is None else self.stages,
            "epilogue_tile": "auto" if self.epilogue_tile is None else list(self.epilogue_tile),
            "swap_ab": self.swap_ab,
            "raster": self.raster,
            "swizzle": self.swizzle,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Tactic:
        """The reverse of :meth:`as_dict`; missing fields take defaults, unknown ones are refused."""
        unknown = set(fields) - set(cls.__dataclass_fields__)
        if unknown:
            raise InputError(f"unknown tactic field {sorted(unknown)[0]!r}")
        try:
            values = dict(fields)
            values["tile"] = tuple(values["tile"])
            values["cluster"] = tuple(values.get("cluster", (1, 1)))
            stages, epilogue = values.get("stages"), values.get("epilogue_tile")
            values["stages"] = None if stages == "auto" else stages
            values["epilogue_tile"] = None if epilogue in (None, "auto") else tuple(epilogue)
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a tactic: {error}") from None


#: What CUTLASS's builder takes when nobody chooses: the tactic a user would have got without tuning.
DEFAULT = Tactic(tile=(128, 128, 128))
