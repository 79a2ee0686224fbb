"""How the M rows of a problem fall on its groups: always stated, always seeded.

``balanced``        every group within one row of M / G (what most public tables measure).
``uniform``         each row goes to a group drawn uniformly: real routing with no skew, groups may be empty.
``zipf:1.2``        group of rank r drawn with probability ~ r**-1.2, ranks shuffled by the seed.
``rows:0,5,0,130``  a recorded histogram, one count per group; it must sum to M.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from tileforge.errors import InputError

#: Rows that a seeded routing draws one by one; a second's work.
MOST_DRAWN = 2**22
_HELP = "use balanced, uniform, zipf:<exponent> or rows:<count>,<count>,..."


@dataclass(frozen=True)
class Routing:
    """A rule that turns (M, G, seed) into rows per group. ``str(routing)`` parses back."""

    kind: str
    exponent: float = 0.0
    rows: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str | Routing) -> Routing:
        """Reads the forms above. Raises InputError on anything else."""
        if isinstance(text, Routing):
            return text
        kind, _, argument = str(text).strip().partition(":")
        try:
            if kind in ("balanced", "uniform") and not argument:
                return cls(kind)
            if kind == "zipf":
                exponent = float(argument)
                if 0 < exponent < 100:
                    return cls(kind, exponent=exponent)
            if kind == "rows":
                rows = tuple(int(part) for part in argument.split(","))
                if all(count >= 0 for count in rows):
                    return cls(kind, rows=rows)
        except ValueError:
            pass
        raise InputError(f"unknown routing {str(text)!r}: {_HELP}")

    def __str__(self) -> str:
        if self.kind == "zipf":
            return f"zipf:{self.exponent:g}"
        if self.kind == "rows":
            return "rows:" + ",".join(map(str, self.rows))
        return self.kind

    def check(self, m: int, groups: int) -> None:
        """Raises InputError when these rows cannot be given to these groups."""
        if self.kind == "rows" and (len(self.rows) != groups or sum(self.rows) != m):
            raise InputError(
                f"routing has {len(self.rows)} groups and {sum(self.rows)} rows, the problem {groups} groups "
                f"and M = {m} rows: give one count per group that sums to M"
            )
        if self.kind in ("uniform", "zipf") and m > MOST_DRAWN:
            raise InputError(f"{self} draws each row, {MOST_DRAWN:,} at most: use balanced or rows:... for M = {m}")

    def sizes(self, m: int, groups: int, seed: int = 0) -> list[int]:
        """Rows of each of ``groups`` groups; they sum to ``m``.

        Uses the standard library's generator, whose stream is stable between Python versions, so that a
        recorded seed means the same rows everywhere. Raises InputError when a histogram does not match.
        """
        self.check(m, groups)
        if self.kind == "rows":
            return list(self.rows)
        if self.kind == "balanced":
            base, extra = divmod(m, groups)
            return [base + (group < extra) for group in range(groups)]
        generator = random.Random(seed)
        weights = [1.0] * groups
        if self.kind == "zipf":
            weights = [(rank + 1) ** -self.exponent for rank in range(groups)]
            generator.shuffle(weights)
        sizes = [0] * groups
        for group in generator.choices(range(groups), cum_weights=list(itertools.accumulate(weights)), k=m):
            sizes[group] += 1
        return sizes
