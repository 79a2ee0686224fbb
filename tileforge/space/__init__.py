"""The space of tactics: everything that can be written down, what of it is legal and why not, and what to build."""

from tileforge.space.enumerate import enumerate_tactics, runtime_variants
from tileforge.space.menu import menu
from tileforge.space.prune import Pruned, prune

__all__ = ["Pruned", "enumerate_tactics", "menu", "prune", "runtime_variants"]
