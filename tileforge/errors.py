"""What can go wrong, as one line that says what is wrong and what to do.

Every exception that tileforge raises on purpose derives from :class:`TileforgeError`; the command line prints
its message as one line and exits with code 2. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations


class TileforgeError(Exception):
    """Base of everything raised on purpose. ``str(error)`` is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class InputError(TileforgeError, ValueError):
    """A problem, tactic, routing, model file or option that cannot be what the user meant."""


class ToolchainError(TileforgeError):
    """No compiler, no CUTLASS, or ones that cannot do what was asked."""


class BuildError(TileforgeError):
    """A kernel that does not compile, or that is missing where nothing can compile it."""


class DeviceError(TileforgeError):
    """No GPU, or one that cannot run what was asked."""


class DatabaseError(TileforgeError):
    """A tuning database that cannot be read or written."""


class NoLegalTacticError(TileforgeError):
    """The rules left no tactic: the message lists what was dropped, why, and the closest candidate."""
