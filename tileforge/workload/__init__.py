"""From a model's configuration to the problems that its MoE layers pose on one GPU."""

from tileforge.workload.buckets import bucket_of, buckets
from tileforge.workload.model import Model, known_models, load_model
from tileforge.workload.problems import Workload

__all__ = ["Model", "Workload", "bucket_of", "buckets", "known_models", "load_model"]
