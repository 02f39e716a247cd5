"""What is looked at in the last steps alone, because it makes them slower.

Values that the script asks for, collectives, gradients, graphs that are kept, bytes that autograd
saves, batches.
"""

import collections
import contextlib
import functools
import threading
import weakref

import torch

from course.checkup.lines import this_line
from course.checkup.phases import DATA, OPTIMIZER
from course.checkup.tensors import tensors_in

SYNCS = "item tolist __bool__ __float__ __int__ __index__ nonzero cpu numpy".split()
COUNT = 24  # steps
GROUP = 4  # consecutive gradients whose mean stands for one of a larger batch
MOST_GRADIENT = 400_000_000  # bytes; larger gradients are not copied


class Counted:
    """What the counted steps of `watch` have shown; facts.py and predict.py read the fields."""

    def __init__(self, watch):
        self.watch = watch
        # (call, line) -> count
        self.syncs, self.collectives = (
            collections.Counter(),
            collections.Counter(),
        )
        # weak references to the graphs of the losses; how many are alive, per step
        self.losses, self.kept = (
            [],
            [],
        )
        # squared norms of gradients, and of means of GROUP of them
        self.small, self.large, self._sum = (
            [],
            [],
            None,
        )
        self.saved = None  # bytes that autograd saved in one step
        self.batches = []  # what padding looks at

    def start(self, patches):
        """Count from now on, until `patches` are put back."""
        for name in SYNCS:
            patches.replace(torch.Tensor, name, functools.partial(self._count_sync, name))
        self._storages, self._saving = {}, contextlib.ExitStack()
        patches.undo.callback(self._saving.close)
        if not self.watch.compiled:
            hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept)
            self._saving.enter_context(hooks)

    def _pack(self, tensor):
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a tensor without storage
            storage = tensor.untyped_storage()
            self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def _saved_bytes(self):
        for _, optimizer in self.watch.all_optimizers():
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                self._storages.pop(p.untyped_storage().data_ptr(), None)
        return sum(self._storages.values())

    def end_step(self, batch):
        """Look at what the step has left behind."""
        self.kept.append(sum(ref() is not None for ref in self.losses))
        if batch is not None and len(self.batches) < COUNT:
            self.batches.append(batch)
        if self.saved is None:
            self._saving.close()
            self.saved = self._saved_bytes()

    def mark_graph(self, tensors):
        """Tie a token to the graph of a loss: as long as something keeps the graph, the token is
        alive.
        """
        loss = next(tensors_in(tensors), None)
        with contextlib.suppress(AttributeError, TypeError):  # a graph without metadata
            token = _Token()
            loss.grad_fn.metadata["check-up"] = token
            self.losses.append(weakref.ref(token))

    def read_gradients(self, optimizer):
        """Squared norms of this step's gradient, and of the mean of each GROUP of consecutive
        ones.
        """
        grads = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if (
            not grads
            or any(g.is_sparse for g in grads)
            or sum(g.nbytes for g in grads) > MOST_GRADIENT
        ):
            return
        flat = torch.cat([g.detach().flatten().float() for g in grads])
        self.small.append(flat.square().sum())
        same = self._sum is not None and self._sum.shape == flat.shape
        self._sum = self._sum + flat if same else flat
        if len(self.small) % GROUP == 0:
            self.large.append((self._sum / GROUP).square().sum())
            self._sum = None

    def _count_sync(self, name, original):
        inside, watch = False, self.watch

        @functools.wraps(original)
        def counted(tensor, *args, **kwargs):
            nonlocal inside
            if (
                inside
                or watch.starting
                or watch.stack[-1] in (DATA, OPTIMIZER)
                or threading.get_ident() != watch.thread
            ):
                return original(tensor, *args, **kwargs)
            if not watch.cuda or tensor.is_cuda:
                self.syncs[f".{name.strip('_')}()", this_line()] += 1
            inside = True
            try:
                return original(tensor, *args, **kwargs)
            finally:
                inside = False

        return counted


class _Token:
    """Lives as long as the graph that it is tied to."""
