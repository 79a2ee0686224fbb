"""Verifying: what a kernel computes, on fixed cases, bit by bit. Importing this needs no torch; the worker does."""

from tileforge.verify.cases import Case, cases
from tileforge.verify.result import Row, Table
from tileforge.verify.run import Verifier, how_to_run

__all__ = ["Case", "Row", "Table", "Verifier", "cases", "how_to_run"]
