"""What grouping by length is worth beside padding and asym, and what exact thresholds cost.

`epochs` trains epochs of SGD on asym's drawn set with each way to compute a batch, in turns;
outputs and trained weights must be equal.  `thresholds` searches four and eight groups of 50,000
lengths. The unit's ways are the reference answers.  asym (github.com/daeseoklee/asym) takes part
where --asym names a folder that holds its package; it is no part of the course.
"""

import copy
import functools
import sys
import time

import torch

from course.datasets import sequences
from course.device import device, machine
from course.errors import CourseError
from course.notebook.solutions import load_solutions
from course.training import grouping
from course.training.token_models import TokenPool
from instructor.bench import spread

UNIT = "05_batch_grouping"
BATCH, THRESHOLDS = 256, [1, 4, 16, 64]


def run(what, asym, dims, rounds):
    """Print the tables of `what`: epochs or thresholds."""
    package = import_asym(asym) if asym else None
    if not package:
        print("without asym: --asym FOLDER names the folder that holds its package")
    if what == "epochs":
        for dim in dims:
            epochs(dim, rounds, package)
    else:
        thresholds(rounds, package)
    print(machine())


def import_asym(folder):
    """The modules of asym that take part. Raises: CourseError if `folder` does not hold its
    package.
    """
    if not (folder / "asym" / "grouper.py").is_file():
        raise CourseError(
            f"looked for asym/grouper.py in {folder}, found none; clone asym and name its folder."
        )
    sys.path.insert(0, str(folder))
    from asym import data_collection, grouper, precompute_grouper_thresholds

    return data_collection, grouper, precompute_grouper_thresholds


def ways(package):
    """{name: function (model, values, lengths) -> scores} of all contestants, the padded batch
    first.
    """
    answers = load_solutions(UNIT)

    def one_rectangle(model, values, lengths):
        return model(*answers.pad_batch(values, lengths))

    def grouped(model, values, lengths):
        return answers.run_grouped(model, values, lengths, THRESHOLDS)

    def sample_by_sample(model, values, lengths):
        samples = values.split(lengths.tolist())
        return grouping.grouped_sample_by_sample(model, samples, THRESHOLDS)

    def flat(model, values, lengths):
        return model.score(answers.segment_max(model.features(values), lengths))

    outputs = {
        "one rectangle": one_rectangle,
        "sample by sample": sample_by_sample,
        "grouped": grouped,
        "flat": flat,
    }
    return outputs | ({"asym": functools.partial(_by_asym, package)} if package else {})


def _by_asym(package, model, values, lengths):
    """Scores by asym's own collection, grouper and regrouping."""
    data_collection, grouper, _ = package
    batch = data_collection.DataCollection("(B, L_sequence)", list(values.split(lengths.tolist())))
    batch.group(grouper=grouper.LengthThresholdGrouper("sequence", THRESHOLDS[:-1]))
    scores = batch.apply(_annotated(model))
    scores.regroup(grouper=grouper.UniGrouper())
    return scores.data_groups[0].value


def _annotated(model):
    """`model` as asym wants it."""
    from asym.annotated_module import AnnotatedModule

    class Annotated(AnnotatedModule):
        def forward(self, x, mask):
            return model(x, mask)

        def get_mask_hint(self):
            return ["seq"]

        def get_input_annot(self):
            return "(b, l_seq)"

        def get_output_annot(self):
            return "(b)"

    return Annotated()


def epoch(score, model, batches, lr=0.01):
    """Train one epoch of SGD on the squared error."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for values, lengths, labels in batches:
        optimizer.zero_grad()
        (score(model, values, lengths) - labels).square().mean().backward()
        optimizer.step()
    if device().type == "cuda":
        torch.cuda.synchronize()


def epochs(dim, rounds, package):
    """Print how many times as fast as one rectangle each way trains, and the bytes that it keeps
    for backward.
    """
    data = sequences.load("demo")
    batches = [
        sequences.collate([data[i] for i in range(b, b + BATCH)])
        for b in range(0, len(data), BATCH)
    ]
    batches = [[part.to(device()) for part in batch] for batch in batches]
    torch.manual_seed(0)
    start, contestants = TokenPool(data.vocabulary, dim, dim).to(device()), ways(package)
    models = {name: copy.deepcopy(start) for name in contestants}
    seconds = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, score in contestants.items():
            begin = time.perf_counter()
            epoch(score, models[name], batches)
            seconds[name].append(time.perf_counter() - begin)
    held = {}
    for name, score in contestants.items():
        held[name] = grouping.bytes_for_backward(
            lambda s=score: s(start, *batches[0][:2]), start.parameters()
        )
    _check_equal(contestants, models, start, batches[0])
    base = torch.tensor(seconds["one rectangle"][1:])
    tokens = sum(int(lengths.sum()) for _, lengths, _ in batches)
    cells = sum(len(lengths) * int(lengths.max()) for _, lengths, _ in batches)
    print(
        f"\nembedding {dim}: {len(data):,} sequences, {cells:,} padded tokens, {tokens:,} real, {rounds} rounds"
    )
    for name in contestants:
        own = torch.tensor(seconds[name][1:])
        print(f"  {name:<17} {1000 * own.median():8.1f} ms per epoch, {spread(base / own, '.1f'):>20} times as fast, "
              f"{100 * held[name] / held['one rectangle']:5.1f} % of the saved bytes")  # fmt: skip
    if package:
        ours, theirs = torch.tensor(seconds["grouped"][1:]), torch.tensor(seconds["asym"][1:])
        print(f"  grouped is {spread(theirs / ours, '.2f')} times as fast as asym")


def _check_equal(contestants, models, start, batch):
    """Raise unless all ways give equal scores and have trained to equal weights."""
    scores = {name: score(start, *batch[:2]) for name, score in contestants.items()}
    for name, model in models.items():
        off = (scores[name] - scores["one rectangle"]).abs().max().item()
        weights = zip(model.parameters(), models["one rectangle"].parameters(), strict=True)
        drift = max((a - b).abs().max().item() for a, b in weights)
        if off > 1e-6 * max(1.0, scores["one rectangle"].abs().max().item()) or drift > 1e-4:
            raise CourseError(
                f"{name} computes something else: scores differ by {off:.1e}, weights by {drift:.1e}."
            )


def thresholds(rounds, package, rows=50_000):
    """Print what thresholds for four and eight groups cost and how long each search takes."""
    answers = load_solutions(UNIT)
    lengths = sequences.lognormal_lengths(
        rows, torch.Generator().manual_seed(0), mean=5.0, std=1.0, longest=2048
    )
    for groups in (4, 8):
        searches = {
            "exact": lambda: answers.best_thresholds(lengths, groups),  # noqa: B023
        }
        if package:
            searches["asym"] = functools.partial(_find_by_asym, package, lengths.tolist(), groups)
        seconds, cost = {name: [] for name in searches}, {}
        for _ in range(rounds):
            for name, search in searches.items():
                begin = time.perf_counter()
                limits = search()
                seconds[name].append(time.perf_counter() - begin)
                cost.setdefault(name, []).append(
                    _cells(answers, lengths, limits) / int(lengths.sum())
                )
        print(
            f"\n{groups} groups of {rows:,} lengths, {len(lengths.unique()):,} of them different, {rounds} rounds"
        )
        for name in searches:
            own = torch.tensor(seconds[name])
            ratio = torch.tensor(seconds["asym"]) / own if package else own / own
            against = (
                f", {spread(ratio, ',.0f')} times as fast as asym"
                if package and name != "asym"
                else ""
            )
            low, high = min(cost[name]), max(cost[name])
            print(
                f"  {name:<15} {spread(1000 * own, ',.1f')} ms, cost {low:.4f} to {high:.4f}{against}"
            )


def _cells(answers, lengths, limits):
    """Cells of all groups."""
    groups = [
        lengths[members] for members in answers.group_by_length(lengths, limits) if len(members)
    ]
    return sum(len(group) * int(group.max()) for group in groups)


def _find_by_asym(package, lengths, groups):
    limits = package[2].find_thresholds(
        lengths, cost_fn=lambda length: length, k=groups - 1, num_trials=100
    )
    return [*limits, max(lengths)]
