"""Train one recommender with several seeds, for little more than the time of one.

An update of a small batch spends most of its time on costs that do not grow with the batch. So
`each_seed` puts the models of all seeds into one: their tables below each other, their layers as
one batched matrix product. Each model sees the batches that it would see alone.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.measure.timing import now
from course.training.metrics import evaluate
from course.training.models import NeuMF, lookup
from course.training.recommender import (
    LOG_ODDS,
    SAMPLES_PER_POSITIVE,
    Experiment,
    MakeOptimizer,
)
from course.training.recommender_loop import Batch, History, epoch_batches, keep_freed_memory

# of all models in one update; larger batches train one model after the other
SAMPLES_MAX = {"cpu": 16_384, "cuda": 2**19}
TABLES = ("gmf_user", "gmf_item", "mlp_user", "mlp_item")


def each_seed(
    experiment: Experiment,
    make_optimizer: MakeOptimizer,
    batch_size: int,
    epochs: float,
    seeds: int,
    output_bias: float = LOG_ODDS,
) -> list[History]:
    """The History of a fresh NeuMF per seed, trained for `epochs` epochs.

    Args:
        make_optimizer: called with parameters; its update treats all elements alike, as SGD's and
            Adam's do (LARS' does not: it takes the norm of a whole tensor).
        seeds: number of runs; their seeds are 0, 1, 2, ...
    """
    models = [experiment.fresh_model(seed=seed, output_bias=output_bias) for seed in range(seeds)]
    if seeds * batch_size <= SAMPLES_MAX[experiment.data.device.type]:
        return _train_together(experiment, models, make_optimizer, batch_size, epochs)
    histories = []
    for seed, model in enumerate(models):
        optimizer = make_optimizer(model.parameters())
        run = experiment.train(model, optimizer, batch_size, seed=seed, epochs=epochs)
        histories.append(run)
    return histories


class ManyNeuMFs(nn.Module):
    """Several NeuMFs of one shape, without dropout, as one module.

    model(users, items), two int64 tensors (models, batch) -> float32 (models, batch)
    """

    def __init__(self, models: list[NeuMF]):
        super().__init__()
        for name in TABLES:
            tables = [getattr(model, name).weight for model in models]
            self.register_parameter(name, nn.Parameter(torch.cat(tables).detach()))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for layers in zip(*[model.mlp for model in models], strict=True):
            self.weights.append(nn.Parameter(torch.stack([one.weight for one in layers]).detach()))
            self.biases.append(nn.Parameter(torch.stack([one.bias for one in layers]).detach()))
        outputs = [model.output for model in models]
        self.output_weight = nn.Parameter(torch.cat([one.weight for one in outputs]).detach())
        self.output_bias = nn.Parameter(torch.stack([one.bias for one in outputs]).detach())

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        gmf = self._rows("gmf_user", users) * self._rows("gmf_item", items)
        hidden = torch.cat((self._rows("mlp_user", users), self._rows("mlp_item", items)), dim=2)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = F.relu(torch.baddbmm(bias[:, None], hidden, weight.transpose(1, 2)))
        last = torch.cat((gmf, hidden), dim=2)
        return torch.bmm(last, self.output_weight[:, :, None]).squeeze(2) + self.output_bias

    def _rows(self, name, numbers):
        """(models, batch, columns): the rows `numbers` of each model's own table."""
        table = getattr(self, name)
        models = len(numbers)
        first = torch.arange(models, device=numbers.device) * (len(table) // models)
        rows = lookup(table, (numbers + first[:, None]).flatten())
        return rows.view(*numbers.shape, -1)

    @torch.no_grad()
    def write_to(self, models: list[NeuMF]) -> None:
        """Copy the weights of each model into `models`."""
        for i, model in enumerate(models):
            for name in TABLES:
                getattr(model, name).weight.copy_(getattr(self, name).chunk(len(models))[i])
            for layer, weight, bias in zip(model.mlp, self.weights, self.biases, strict=True):
                layer.weight.copy_(weight[i])
                layer.bias.copy_(bias[i])
            model.output.weight.copy_(self.output_weight[i : i + 1])
            model.output.bias.copy_(self.output_bias[i])


def _train_together(experiment, models, make_optimizer, batch_size, epochs) -> list[History]:
    """As `each_seed`: all models in every update."""
    keep_freed_memory()
    data = experiment.data
    together = ManyNeuMFs(models)
    optimizer = make_optimizer(together.parameters())
    n_samples = SAMPLES_PER_POSITIVE * len(data.train_users)
    per_epoch = math.ceil(n_samples / batch_size)
    total = round(epochs * per_epoch)
    histories = [History(steps_per_epoch=per_epoch) for _ in models]
    batches = _batches(experiment, batch_size, len(models))
    done = 0
    while done < total:
        steps = min(per_epoch, total - done)
        started = now(data.device)
        losses = _advance(together, optimizer, batches, steps)
        seconds = now(data.device) - started
        done += steps
        together.write_to(models)
        for model, history, of_model in zip(models, histories, losses.T, strict=True):
            _add_entry(history, of_model, seconds, min(steps * batch_size, n_samples))
            if not history.diverged:
                scores = evaluate(model, *data.judged, experiment.rank_metrics)
            else:
                scores = (math.nan, math.nan)
            history.hit_rate.append(scores[0])
            history.ndcg.append(scores[1])
    for model, history in zip(models, histories, strict=True):
        if not history.diverged:
            history.silent = experiment.silent_units(model)
    return histories


def _advance(together, optimizer, batches, steps) -> Tensor:
    """(steps, models): the mean losses of `steps` updates."""
    losses = []
    for _ in range(steps):
        users, items, labels = next(batches)
        optimizer.zero_grad(set_to_none=True)
        logits = together(users, items)
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)
        loss.sum().backward()  # no model's gradient depends on another model
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def _batches(experiment: Experiment, batch_size: int, seeds: int) -> Iterator[Batch]:
    """Yield (users, items, labels), each (seeds, batch): a row is what that seed sees alone."""
    data = experiment.data
    generators = [torch.Generator(data.device).manual_seed(seed) for seed in range(seeds)]
    while True:
        epochs = []
        for generator in generators:
            draw = experiment.sample_negatives
            epochs.append(epoch_batches(data, batch_size, draw, generator=generator))
        for batches in zip(*epochs, strict=True):
            yield tuple(torch.stack(parts) for parts in zip(*batches, strict=True))


def _add_entry(history, losses, seconds, samples) -> None:
    """Append one epoch to a History, all but its scores."""
    history.losses += losses.tolist()
    history.updates += len(losses)
    history.epoch.append(history.updates / history.steps_per_epoch)
    history.loss.append(losses.mean().item())
    history.diverged = not math.isfinite(history.loss[-1])
    history.samples.append(samples)
    history.seconds_train.append(seconds)
    history.seconds_eval.append(0.0)
