"""Predicted times, for ranking only: a prediction is never presented as a measurement."""

from tileforge.predict.constants import Constants, constants_for
from tileforge.predict.model import Prediction, time_us
from tileforge.predict.ranking import distinct, leaders, rank

__all__ = ["Constants", "Prediction", "constants_for", "distinct", "leaders", "rank", "time_us"]
