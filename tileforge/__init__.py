"""tileforge: which CUTLASS tile runs a Mixture-of-Experts layer's grouped GEMMs, decided offline and looked up.

>>> import tileforge
>>> problem = tileforge.GroupedGemm(m=512, n=4096, k=6144, groups=32, format="nvfp4")
>>> results = tileforge.tune(problem)            # offline: writes the tuning database
>>> tileforge.pick(problem).tactic               # serving: a look-up of a few microseconds
"""

from tileforge.db import TuningDB
from tileforge.picking import pick
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.tuning import tune

__all__ = ["GroupedGemm", "Tactic", "TuningDB", "pick", "tune"]
