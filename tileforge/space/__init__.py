"""The space of tactics: everything that can be written down, what of it is legal and why not, and what to build."""

from tileforge.space.enumerate import enumerate_tactics, runtime_variants
from tileforge.space.menu import menu
from tileforge.space.nearest import Near, nearest
from tileforge.space.prune import Pruned, judge, nothing_left, prune, words
from tileforge.space.waterfall import Step, waterfall

__all__ = [
    "Near",
    "Pruned",
    "Step",
    "enumerate_tactics",
    "judge",
    "menu",
    "nearest",
    "nothing_left",
    "prune",
    "runtime_variants",
    "waterfall",
    "words",
]
