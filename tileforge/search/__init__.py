"""Search: which legal tactic is measured next, which one is chosen, and how a killed run goes on."""

from tileforge.search.budget import Budget
from tileforge.search.choose import choose, decide
from tileforge.search.events import Event, OnEvent
from tileforge.search.kernels import KernelSource
from tileforge.search.result import Choice, Finals, SearchResult
from tileforge.search.run import run
from tileforge.search.sweep import sweep

__all__ = [
    "Budget",
    "Choice",
    "Event",
    "Finals",
    "KernelSource",
    "OnEvent",
    "SearchResult",
    "choose",
    "decide",
    "run",
    "sweep",
]
