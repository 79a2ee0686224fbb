"""The tuning database: schema, YAML files, store, merge, staleness, look-up."""

from tileforge.db.environment import Comparison, compare_environment
from tileforge.db.key import GpuFacts, Key
from tileforge.db.lookup import Pick
from tileforge.db.merge import merge
from tileforge.db.quarantine import Quarantine, Quarantined
from tileforge.db.record import Evidence, Record
from tileforge.db.store import Refusal, TuningDB

__all__ = [
    "Comparison",
    "Evidence",
    "GpuFacts",
    "Key",
    "Pick",
    "Quarantine",
    "Quarantined",
    "Record",
    "Refusal",
    "TuningDB",
    "compare_environment",
    "merge",
]
