"""Wrong answers of one kind, made from a reference: its results, or what it was given, changed after it was called.

Every change is noted in a file, also by an answer that runs in another process: a test can see that something was
changed, and that what refused the answer was not this module breaking.
"""

import collections.abc
import copy
import dataclasses
import functools
import inspect
import os
import re
import tempfile
import types
from pathlib import Path

import numpy
import torch

from course.checks.compare import same_values

SPECIAL = ("__call__", "__getitem__", "__iter__", "__next__")  # methods that a class is asked for by Python's syntax


def nan(leaf):
    """NaN in the form of `leaf`; what cannot be NaN is another value."""
    if isinstance(leaf, torch.Tensor):
        if leaf.is_floating_point() or leaf.is_complex():
            return torch.full_like(leaf, float("nan"))
        return ~leaf if leaf.dtype in (torch.bool, torch.uint8) else leaf + 1  # a picture: its negative
    if isinstance(leaf, numpy.ndarray):
        return numpy.full_like(leaf, numpy.nan) if leaf.dtype.kind == "f" else leaf + 1
    return float("nan") if isinstance(leaf, (bool, int, float)) else leaf


def other_shape(leaf):
    """A tensor with a dimension of 1 behind the others."""
    return leaf[..., None] if isinstance(leaf, (torch.Tensor, numpy.ndarray)) else leaf


def other_device(leaf):
    """A tensor on the meta device, where none is asked for."""
    return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf


def on_the_cpu(leaf):
    """A tensor of a GPU on the CPU."""
    return leaf.cpu() if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf


class Notes:
    """How often something was changed, and what broke here, whichever process it was in."""

    def __init__(self):
        descriptor, name = tempfile.mkstemp(prefix="wrong-answer-")
        os.close(descriptor)
        self.path = Path(name)

    def write(self, text):
        with self.path.open("a") as file:
            file.write(f"{text}\n")

    def read(self):
        """(number of changes, what broke)."""
        lines = self.path.read_text().splitlines()
        return lines.count("changed"), [line for line in lines if line != "changed"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.path.unlink()


class Changer:
    """Copies of results in which every tensor, array and number is `change`d, however deep it lies."""

    def __init__(self, change, notes):
        self.change, self.notes = change, notes

    def __call__(self, value):
        try:
            return self.deep(value)
        except Exception as error:
            self.notes.write(f"{type(error).__name__}: {error}".replace("\n", " "))
            raise

    def deep(self, value):
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.deep, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.deep, value))
        if isinstance(value, collections.abc.Mapping) and type(value) in (dict, collections.OrderedDict):
            return type(value)((key, self.deep(item)) for key, item in value.items())
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        if isinstance(value, torch._C.Future):  # of a collective; torch.futures.Future is one
            return value.then(lambda done: self(done.value()))
        if isinstance(value, collections.abc.Iterator):
            return self.iterator(value)
        if inspect.isfunction(value):
            return lambda *args, **kwargs: self(value(*args, **kwargs))
        if isinstance(value, types.SimpleNamespace) or (dataclasses.is_dataclass(value) and hasattr(value, "__dict__")):
            changed = copy.copy(value)
            vars(changed).update({name: self.deep(item) for name, item in vars(value).items()})
            return changed
        return self.leaf(value)

    def leaf(self, value):
        changed = self.change(value)
        if changed is not value:
            self.notes.write("changed")
        return changed

    def module(self, value):
        """A module with other parameters and buffers; a deep copy would refuse those with a graph."""
        changed = copy.copy(value)
        changed._modules = {name: part and self.module(part) for name, part in value._modules.items()}
        for table in ("_parameters", "_buffers"):
            new = {name: old if old is None else self.parameter(old) for name, old in getattr(value, table).items()}
            setattr(changed, table, new)
        for name, item in vars(value).items():
            if isinstance(item, torch.Tensor):
                setattr(changed, name, self.parameter(item))
        return changed

    def parameter(self, tensor):
        new = self.leaf(tensor)
        return torch.nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else new

    def iterator(self, value):
        while True:
            try:
                changed = [self(next(value))]
            except StopIteration:
                return
            yield changed.pop()  # nothing is held on to: who counts buffers would see it


def wrapped(reference, around):
    """`reference` as around(function) makes it; of a class, a subclass whose public methods are made so."""
    if not isinstance(reference, type):
        return around(reference)
    methods = {
        name: around(method)
        for name, method in vars(reference).items()
        if inspect.isfunction(method) and (not name.startswith("_") or name in SPECIAL)
    }
    return type(reference.__name__, (reference,), methods | {"__module__": reference.__module__})


def with_results(reference, change, notes):
    """The reference, except that its results are changed; what it only writes into its arguments, there."""
    changer = Changer(change, notes)

    def around(function):
        @functools.wraps(function)  # probes may ask for the signature
        def answer(*args, **kwargs):
            return changer(function(*args, **kwargs))

        return answer

    return wrapped(reference, around)


def given_tensors(value):
    """Every tensor in what a call is given: in containers, modules and optimizers too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from given_tensors(item)
    elif isinstance(value, dict):
        yield from given_tensors(list(value.values()))
    elif isinstance(value, torch.nn.Module):
        yield from value.state_dict(keep_vars=True).values()
    elif isinstance(value, torch.optim.Optimizer):
        yield from (tensor for group in value.param_groups for tensor in group["params"])


def with_written(reference, change, notes, only_changed=False):
    """The reference, except that it writes change(tensor) into the tensors that it was given.

    Args:
        only_changed: whether into those alone that the reference has written to.
    """

    def around(function):
        @functools.wraps(function)
        def answer(*args, **kwargs):
            given = [t for t in given_tensors([*args, *kwargs.values()]) if t.numel()]
            before = [t.detach().clone() for t in given]
            result = function(*args, **kwargs)
            try:
                for tensor, old in zip(given, before, strict=True):
                    if not only_changed or not same_values(tensor.detach(), old):
                        tensor.data.copy_(change(tensor.data))
                        notes.write("changed")
            except Exception as error:
                notes.write(f"{type(error).__name__}: {error}".replace("\n", " "))
                raise
            return result

        return answer

    return wrapped(reference, around)


def plus_one(tensor):
    """Other values in the form of `tensor`."""
    return ~tensor if tensor.dtype == torch.bool else tensor + 1


NO_TENSOR = "what it returns holds no tensor"
NO_NUMBER = "what it returns holds no number: an object, a string or nothing"
NO_TENSOR_GIVEN = "it is given no tensor"
INAPPLICABLE = {
    ("methods", "it is asked for attributes"): "fast_loading: Records",
    ("through", "an iterator around another one ends at another moment"): "fast_loading: copy_ahead read_ahead",
    ("shape", NO_TENSOR): """
        parallel_loading: batch_plan batches_drawn choose_workers heavy_transform judge lean_loader lean_training
            loader_options sample_seed seed_worker training_loader worker_loop
        data_parallel: ShardSampler ShardedOptimizer accumulate all_reduce_seconds average_hook broadcast_naive
            broadcast_tree data_parallel_messages ddp_facts device_of halving_doubling lightning_fit
            reduce_naive reduce_tree ring_all_reduce ring_bytes shard_scale sharded_bytes train_ddp weighted_mean
        large_batch: exponential_warmup flushed_share linear_warmup noise_scale polynomial_decay rank_metrics
            scaled_lr sgd_step shows_frozen_bias
        fast_loading: Records batch_bias bytes_per_row pipeline_seconds read_ahead row_stride sgd_step_
            write_records
        batch_grouping: BucketBatchSampler best_cuts best_thresholds grouping_cost padding_waste saved_bytes
            shard_batches stragglers timed_training token_budget_batches untouched
        faster_training: adamw_step advice_worth break_even channels_last cleared cyclic evaluate_fast hidden_syncs
            largest_batch lr_range_test one_cycle saved_bytes segments shares_memory speedup_bound where_time_goes
    """,
    ("device", "what it returns are arrays of numpy"): "fast_loading: make_data",
    ("nan", NO_NUMBER): """
        parallel_loading: heavy_transform lean_loader seed_worker training_loader
        data_parallel: ShardedOptimizer average_hook device_of
        fast_loading: Records write_records
        batch_grouping: untouched
        faster_training: hidden_syncs
    """,
    ("nan", "it writes into the gradients of what it is given"): "faster_training: clip_grad_norm",
    ("input", NO_TENSOR_GIVEN): """
        parallel_loading: LFWDataset LeanFaces Prefetcher WorkerLoader WorkerWitness batch_plan batches_drawn
            choose_workers heavy_transform in_order judge lean_loader lean_training loader_options sample_seed
            seconds_per_pass seed_worker training_loader
        data_parallel: ShardSampler ShardedOptimizer all_reduce_seconds data_parallel_messages ddp_facts device_of
            ring_bytes shard_scale sharded_bytes train_ddp
        large_batch: exponential_warmup linear_warmup polynomial_decay scaled_lr shows_frozen_bias
        fast_loading: Records bytes_per_row make_data mean_and_std pipeline_seconds quasi_random_order
            random_order read_ahead ridge_by_cg row_stride sliding_order write_records
        batch_grouping: BucketBatchSampler best_cuts shard_batches untouched
        faster_training: advice_worth break_even cleared cyclic hidden_syncs largest_batch one_cycle segments
            speedup_bound where_time_goes
    """,
}


def inapplicable(exercise, kind):
    """The reason why no wrong answer of `kind` can be made from the reference of `exercise`, or None."""
    for (kinds, reason), listed in INAPPLICABLE.items():
        if kind == kinds or (kind == "device" and kinds == "shape"):
            names = re.search(rf"{exercise.unit[3:]}:([^:]*)(?: \w+:|$)", " ".join(listed.split()))
            if names and exercise.name in names[1].split():
                return reason
    return None
