"""Probes of unit 01_parallel_loading, one module per exercise."""

UNIT = "01_parallel_loading"  # above the imports: `@exercise` reads it

from course.checks.parallel_loading.batch_picture import batch_picture
from course.checks.parallel_loading.batch_plan import batch_plan
from course.checks.parallel_loading.Ceiling import Ceiling
from course.checks.parallel_loading.choose_workers import choose_workers
from course.checks.parallel_loading.lean_loader import lean_loader
from course.checks.parallel_loading.lean_training import lean_training
from course.checks.parallel_loading.LeanFaces import LeanFaces
from course.checks.parallel_loading.LFWDataset import LFWDataset
from course.checks.parallel_loading.predict_seconds import predict_seconds
from course.checks.parallel_loading.Prefetcher import Prefetcher
from course.checks.parallel_loading.ResumingLoader import ResumingLoader
from course.checks.parallel_loading.seconds_per_pass import seconds_per_pass
from course.checks.parallel_loading.seed_worker import seed_worker
from course.checks.parallel_loading.ThreadedLoader import ThreadedLoader
from course.checks.parallel_loading.to_device import to_device
from course.checks.parallel_loading.training_loader import training_loader
from course.checks.parallel_loading.WorkerWitness import WorkerWitness

__all__ = [
    "Ceiling",
    "LFWDataset",
    "LeanFaces",
    "Prefetcher",
    "ResumingLoader",
    "ThreadedLoader",
    "WorkerWitness",
    "batch_picture",
    "batch_plan",
    "choose_workers",
    "lean_loader",
    "lean_training",
    "predict_seconds",
    "seconds_per_pass",
    "seed_worker",
    "to_device",
    "training_loader",
]
