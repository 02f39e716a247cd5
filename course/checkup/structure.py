"""The blocks of the watched model, for plans that cut it: *the last step, again* -> Structure.

`nn.Module.__call__` is replaced while the step runs again, and outputs of blocks tell when backward
reaches them. No module gets a hook.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from course.checkup.failures import in_words
from course.checkup.patches import Patches
from course.checkup.replay import NO_CALLS, Replay, as_it_was, put_back, replay_of
from course.checkup.seen import Call
from course.checkup.tensors import tensors_in
from course.checkup.trials import as_if_outside
from course.checkup.watch import Watch

RUNS = 3  # of the step, whose times are compared; one more before them warms up
COMPILED = "the model is compiled, so its layers are not seen"
SEVERAL = "a step calls several models, or one several times"
NO_BLOCKS = "no nn.Sequential or nn.ModuleList calls each of its modules once, in order"
NO_CHAIN = "a block takes more than the output of the block before it"
NO_GRADIENT = "the output of a block has no gradient"
NO_PAIRS = "the nn.Linear layers of a block do not come in pairs that return to its width"
NO_LINEAR = "no block has nn.Linear layers"


@dataclass(frozen=True)
class Parameter:
    """A parameter, and what the optimizer keeps for it."""

    key: int  # the same for a parameter that two parts share
    shape: tuple[int, ...]
    size: int  # bytes of a number
    trained: bool
    state: int = 0  # bytes of the optimizer's tensors of the same shape
    scalars: int = 0  # bytes of its other tensors

    @property
    def n_bytes(self) -> int:
        """Bytes of its numbers."""
        return functools.reduce(lambda a, b: a * b, self.shape, self.size)


@dataclass(frozen=True)
class Pair:
    """Linear layers of which the first can be cut by columns, the last by rows (07/3)."""

    split: frozenset[int]  # keys of the parameters that are cut
    width: int  # numbers between them, which the ranks share
    n_input: int  # bytes of the first one's input
    n_output: int  # bytes of the last one's output
    share: float  # of the block's seconds in a forward pass
    saved: dict[int, int]  # storages in between that autograd saves: address -> bytes


@dataclass(frozen=True)
class Piece:
    """A block; or what lies before the first one, or behind the last one."""

    parameters: tuple[Parameter, ...]
    forward: float = 0.0  # seconds
    backward: float = 0.0
    saved: dict[int, int] = field(default_factory=dict)  # as in Pair
    sends: int = 0  # bytes of its output
    pairs: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Structure:
    """A model as a chain: what lies before the blocks, the blocks, and what lies behind."""

    parameters: tuple[Parameter, ...]  # of the model and of the optimizers, each once
    name: str = ""  # of the blocks in the model
    before: Piece = Piece(())
    blocks: tuple[Piece, ...] = ()
    after: Piece = Piece(())
    no_blocks: str = ""  # why they are not known
    no_pairs: str = ""  # why no layers can be cut


class Unknown(Exception):
    """What is not known of a model; its text says why."""


def structure_of(watch: Watch) -> Structure:
    """The Structure of the model that a Watch has seen last; where it is not known it says why."""
    states = _states(watch)
    parameters = {id(p): _parameter(p, states) for p in watch.seen.parameters()}
    for model in watch.seen.models.values():
        parameters |= {id(p): _parameter(p, states) for p in model.parameters()}
    every = tuple(parameters.values())
    try:
        if watch.seen.compiled:
            raise Unknown(COMPILED)
        with as_if_outside():
            passes = watch.seen.backwards / max(1, len(watch.steps))
            return _looked_at(replay_of(watch), every, states, round(passes))
    except Unknown as reason:
        return Structure(every, no_blocks=str(reason), no_pairs=str(reason))
    except Exception as error:  # a stranger's model may fail in any way; the plan says so
        return Structure(every, no_blocks=in_words(error), no_pairs=in_words(error))


States = dict[int, dict[str, Any]]  # what the optimizers keep, by the id of the parameter


def _states(watch: Watch) -> States:
    """What the optimizers keep for each parameter."""
    found = {}
    for seen in watch.seen.optimizers.values():
        for parameter, state in seen.optimizer.state.items():
            found[id(parameter)] = state
    return found


def _parameter(parameter: Tensor, states: States) -> Parameter:
    like = 0
    others = 0
    for tensor in tensors_in(dict(states.get(id(parameter), {}))):
        if tensor.shape == parameter.shape and tensor.dim():
            like += tensor.nbytes
        else:
            others += tensor.nbytes
    shape, size = tuple(parameter.shape), parameter.element_size()
    return Parameter(id(parameter), shape, size, parameter.requires_grad, like, others)


# ---- one more step


@dataclass
class _Visit:
    """A call of a module in the forward pass."""

    module: nn.Module
    inputs: list[Tensor]
    began: float
    first: int  # the event at which it began, see _Recorder
    outputs: list[Tensor] = field(default_factory=list)
    ended: float = 0.0
    last: int = 0

    @property
    def seconds(self) -> float:
        """Seconds of the call, more than 0."""
        return max(1e-9, self.ended - self.began)


class _Recorder:
    """Notes calls of modules and what autograd saves; these events have numbers in their order."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.visits: list[_Visit] = []
        self.saved: list[tuple[int, int, int]] = []  # (event, address of a storage, bytes)
        self._now = now
        self._events = 0

    def event(self) -> int:
        """The number of a new event."""
        self._events += 1
        return self._events

    def call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What replaces `nn.Module.__call__`."""

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            inputs = list(tensors_in((args, kwargs)))
            visit = _Visit(module, inputs, self._now(), self.event())
            self.visits.append(visit)
            output = original(module, *args, **kwargs)
            visit.outputs = list(tensors_in(output))
            visit.ended = self._now()
            visit.last = self.event()
            return output

        return call

    def save(self, tensor: Tensor) -> Tensor:
        """Note a tensor that autograd saves."""
        storage = tensor.untyped_storage()
        self.saved.append((self.event(), storage.data_ptr(), storage.nbytes()))
        return tensor

    def saved_in(self, first: int, last: int, but: Iterable[Tensor]) -> dict[int, int]:
        """{address: bytes} of the storages that were saved between two events, without `but`."""
        known = {tensor.untyped_storage().data_ptr() for tensor in but}
        inside = [each for each in self.saved if first <= each[0] < last]
        return {address: size for _, address, size in inside if address not in known}


def _looked_at(
    replay: Replay, every: tuple[Parameter, ...], states: States, passes: int
) -> Structure:
    """The Structure of the replay's model.  Raises: Unknown.

    Args:
        passes: backward passes of a step.
    """
    if not replay.calls:
        raise Unknown(NO_CALLS)
    models = {id(call.module) for call in replay.calls}
    if len(models) > 1 or len(replay.calls) > max(1, passes):
        raise Unknown(SEVERAL)
    call = replay.calls[-1]
    with put_back(replay):
        _Pass(call, replay.device)
        seconds = [_Pass(call, replay.device).seconds for _ in range(RUNS - 1)]
        seen = _Pass(call, replay.device)
    before, *blocks, after = seen.pieces(states, _medians([*seconds, seen.seconds]))
    has_pairs = any(block.pairs for block in blocks)
    no_pairs = seen.no_pairs or ("" if has_pairs else NO_LINEAR)
    return Structure(every, seen.name, before, tuple(blocks), after, no_pairs=no_pairs)


def _medians(runs: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The median seconds (forward, backward) of each piece."""
    medians = []
    for of_piece in zip(*runs, strict=True):
        forward, backward = zip(*of_piece, strict=True)
        medians.append((statistics.median(forward), statistics.median(backward)))
    return medians


class _Pass:
    """One forward and backward pass of a call, cut at the blocks of its module.

    Raises: Unknown.
    """

    def __init__(self, call: Call, device: str) -> None:
        self.model = call.module
        self._now = _clock(device)
        recorder = _Recorder(self._now)
        start = self._now()
        outputs = _recorded(call, recorder, as_it_was(call, device))
        end = self._now()
        self.recorder = recorder
        self.name, self.blocks = _blocks(self.model, recorder.visits)
        forward = [start, *(visit.began for visit in self.blocks), self.blocks[-1].ended, end]
        backward = self._backward(call, outputs)
        self.seconds = list(zip(_lengths(forward), backward, strict=True))
        self.no_pairs = ""

    def _backward(self, call: Call, outputs: list[Tensor]) -> list[float]:
        """Seconds of the backward pass of each piece, in the order of the forward pass."""
        reached: dict[int, float] = {}  # place in the chain -> when its gradient was there

        def mark(place: int, gradient: Tensor) -> None:
            reached[place] = self._now()

        chain = [self.blocks[0].inputs, *(visit.outputs for visit in self.blocks)]
        for place, tensors in enumerate(chain):
            tensor = next((t for t in tensors if t.requires_grad), None)
            if tensor is not None:
                tensor.register_hook(functools.partial(mark, place))
        start = self._now()
        gradients = {i: g for i, g in call.gradients.items() if outputs[i].requires_grad}
        torch.autograd.backward([outputs[i] for i in gradients], list(gradients.values()))
        end = self._now()
        reached.setdefault(0, end)  # data have no gradient
        if len(reached) < len(chain):
            raise Unknown(NO_GRADIENT)
        places = sorted(reached, reverse=True)
        return _lengths([start, *(reached[place] for place in places), end])[::-1]

    def pieces(self, states: States, seconds: list[tuple[float, float]]) -> list[Piece]:
        """What lies before the blocks, the blocks, and what lies behind."""
        firsts = [0, *(visit.first for visit in self.blocks), self.blocks[-1].last]
        lasts = [*firsts[1:], self.recorder.event()]
        modules = [None, *(visit.module for visit in self.blocks), None]
        owned = list(self.model.parameters())
        before, after = self._ends()
        pieces = []
        for place, (first, last, module) in enumerate(zip(firsts, lasts, modules, strict=True)):
            ends = before if place == 0 else after
            parameters = ends if module is None else list(module.parameters())
            is_block = module is not None
            piece = Piece(
                tuple(_parameter(each, states) for each in parameters),
                *seconds[place],
                saved=self.recorder.saved_in(first, last, owned),
                sends=_sent(self.blocks[place - 1].outputs) if is_block else 0,
                pairs=tuple(self._pairs(self.blocks[place - 1], owned)) if is_block else (),
            )
            pieces.append(piece)
        return pieces

    def _ends(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters before the blocks and behind them; one that both use is in both."""
        of_blocks = {id(p) for visit in self.blocks for p in visit.module.parameters()}
        behind: dict[int, Tensor] = {}
        ahead: dict[int, Tensor] = {}
        for visit in self.recorder.visits:
            is_behind = visit.first > self.blocks[-1].last
            for parameter in visit.module.parameters(recurse=False):
                if id(parameter) not in of_blocks:
                    (behind if is_behind else ahead)[id(parameter)] = parameter
        for parameter in self.model.parameters():
            known = of_blocks | ahead.keys() | behind.keys()
            if id(parameter) not in known:
                ahead[id(parameter)] = parameter
        return list(ahead.values()), list(behind.values())

    def _pairs(self, block: _Visit, owned: list[Tensor]) -> list[Pair]:
        """The pairs of layers of a block; if there is one that does not fit, `no_pairs` says so."""
        inside = [v for v in self.recorder.visits if block.first <= v.first <= block.last]
        groups: list[list[_Visit]] = []
        pairs = []
        for visit in inside:
            if isinstance(visit.module, nn.MultiheadAttention):
                pairs.append(self._attention(block, visit, visit.module, owned))
            elif isinstance(visit.module, nn.Linear):
                if groups and groups[-1][0].inputs[0] is visit.inputs[0]:
                    groups[-1].append(visit)
                else:
                    groups.append([visit])
        if len(groups) % 2:
            self.no_pairs = NO_PAIRS
            return pairs
        for columns, rows in zip(groups[::2], groups[1::2], strict=True):
            if len(rows) > 1 or rows[0].module.out_features != columns[0].module.in_features:
                self.no_pairs = NO_PAIRS
            else:
                pairs.append(self._pair(block, columns, rows[0], owned))
        return pairs

    def _pair(
        self, block: _Visit, columns: list[_Visit], rows: _Visit, owned: list[Tensor]
    ) -> Pair:
        split = [id(rows.module.weight)]
        for visit in columns:
            split += [id(parameter) for parameter in visit.module.parameters()]
        first = columns[0]
        return Pair(
            split=frozenset(split),
            width=rows.module.in_features,
            n_input=first.inputs[0].nbytes,
            n_output=_sent(rows.outputs),
            share=(rows.ended - first.began) / block.seconds,
            saved=self.recorder.saved_in(first.first, rows.last, [*owned, first.inputs[0]]),
        )

    def _attention(
        self, block: _Visit, visit: _Visit, module: nn.MultiheadAttention, owned: list[Tensor]
    ) -> Pair:
        """torch's own attention: its projection of the input, and that of the output."""
        whole = [] if module.out_proj.bias is None else [id(module.out_proj.bias)]
        return Pair(
            split=frozenset(id(p) for p in module.parameters() if id(p) not in whole),
            width=module.num_heads,
            n_input=visit.inputs[0].nbytes,
            n_output=visit.outputs[0].nbytes,
            share=visit.seconds / block.seconds,
            saved=self.recorder.saved_in(visit.first, visit.last, [*owned, *visit.inputs]),
        )


def _clock(device: str) -> Callable[[], float]:
    """A clock that waits for the GPU, so that work counts where it was asked for."""

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def _recorded(call: Call, recorder: _Recorder, mode: Any) -> list[Tensor]:
    """The outputs of a call, whose modules a recorder sees."""
    patches = Patches()
    hooks = torch.autograd.graph.saved_tensors_hooks(recorder.save, lambda saved: saved)
    try:
        patches.replace(nn.Module, "__call__", recorder.call)
        with hooks, mode:
            return list(tensors_in(call.module(*call.args, **call.kwargs)))
    finally:
        patches.close()


def _lengths(times: Sequence[float]) -> list[float]:
    return [end - start for start, end in zip(times, times[1:], strict=False)]


def _sent(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors that have gradients, which are sent to the next rank."""
    return sum(tensor.nbytes for tensor in tensors if tensor.requires_grad)


# ---- the blocks


def _blocks(model: nn.Module, visits: Sequence[_Visit]) -> tuple[str, list[_Visit]]:
    """(name, calls) of the list of modules that has most parameters and is a chain.

    Raises: Unknown.
    """
    best: list[_Visit] = []
    best_name = ""
    most = 0
    for name, module in model.named_modules():
        found = _called_in_order(module, visits)
        n_bytes = sum(parameter.nbytes for parameter in module.parameters())
        if len(found) > 1 and n_bytes > most:
            best, best_name, most = found, name, n_bytes
    if not best:
        raise Unknown(NO_BLOCKS)
    for visit, following in zip(best, best[1:], strict=False):
        if not _follows(following, visit):
            raise Unknown(NO_CHAIN)
    return best_name or type(model).__name__, best


def _called_in_order(module: nn.Module, visits: Sequence[_Visit]) -> list[_Visit]:
    """The calls of the modules in a list, if each was called once and in order; else []."""
    if not isinstance(module, nn.Sequential | nn.ModuleList):
        return []
    children = list(module)
    ids = {id(child) for child in children}
    found = [visit for visit in visits if id(visit.module) in ids]
    is_in_order = [id(visit.module) for visit in found] == [id(child) for child in children]
    return found if is_in_order else []


def _follows(visit: _Visit, before: _Visit) -> bool:
    """Whether a block takes the output of the block before it, and nothing else with a graph."""
    outputs = {id(tensor) for tensor in before.outputs}
    from_graph = {id(tensor) for tensor in visit.inputs if tensor.requires_grad}
    return bool(from_graph) and from_graph <= outputs
