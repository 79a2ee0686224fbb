"""Makes the backend in the worker process, so that what is missing there is one line. Importing this needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileforge.errors import DeviceError

if TYPE_CHECKING:
    from tileforge.verify.backend import VerifyBackend


def backend(device: str = "cuda:0") -> VerifyBackend:
    """Raises DeviceError without torch, or without that device."""
    try:
        from tileforge.verify.backend import VerifyBackend
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise DeviceError("running kernels needs torch: pip install 'tileforge[gpu]'") from None
    return VerifyBackend(device)
