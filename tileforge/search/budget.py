"""How much a search may spend: tactics tried, minutes, or until nothing is left."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tileforge.errors import InputError

_UNITS = {"s": 1 / 60, "m": 1.0, "min": 1.0, "h": 60.0}


@dataclass(frozen=True)
class Budget:
    """``trials``: tactics tried, failures and earlier runs' results included. ``minutes``: of this run's wall clock.

    None is no limit; both None means every survivor. Finals (a few seconds) come on top.
    """

    trials: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise InputError(f"a budget of {self.trials} trials tries nothing: give 1 or more")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"a budget of {self.minutes:g} minutes tries nothing: give more than 0")

    @classmethod
    def parse(cls, text: str | int | Budget | None) -> Budget:
        """``40`` (trials), ``90s``, ``10m``, ``2h``, ``all``, or trials and time: ``40,10m``. None is ``all``."""
        if isinstance(text, Budget):
            return text
        trials, minutes = None, None
        for part in [] if text is None else str(text).replace(" ", "").lower().split(","):
            found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)?", part)
            if part == "all":
                continue
            if found and found[2]:
                minutes = float(found[1]) * _UNITS[found[2]]
            elif found and found[1].isdigit():
                trials = int(found[1])
            else:
                raise InputError(f"{text!r} is not a budget: write 40 (tactics), 10m, 2h, 40,10m or all")
        return cls(trials, minutes)

    def spent(self, trials: int, seconds: float) -> bool:
        return (self.trials is not None and trials >= self.trials) or (
            self.minutes is not None and seconds >= 60 * self.minutes
        )

    def eta_s(self, trials: int, new_trials: int, seconds: float, survivors: int) -> float | None:
        """Seconds until the search part ends; None before anything is known."""
        left = min(survivors, survivors if self.trials is None else self.trials) - trials
        by_pace = left * seconds / new_trials if new_trials else None
        by_clock = None if self.minutes is None else max(0.0, 60 * self.minutes - seconds)
        known = [value for value in (by_pace, by_clock) if value is not None]
        return max(0.0, min(known)) if known else None

    def __str__(self) -> str:
        parts = [f"{self.trials} tactics"] if self.trials is not None else []
        parts += [f"{self.minutes:g} min"] if self.minutes is not None else []
        return " or ".join(parts) or "every legal tactic"
