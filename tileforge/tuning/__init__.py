"""The rooms in a line: what :func:`tileforge.tune` does between a problem and a record.

Importing this loads neither optuna, torch nor numpy: the work is imported when there is some.
"""

from tileforge.tuning.api import tune
from tileforge.tuning.result import INTERRUPTED, MEASURED, NOTHING, PREDICTED, Confirmed, TuneResult

__all__ = ["INTERRUPTED", "MEASURED", "NOTHING", "PREDICTED", "Confirmed", "TuneResult", "tune"]
