"""Known mistakes of exercise global_moments, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "channels_mixed": (
        "reshape(-1, C) alone mixes the channels of images, whose last axis is the width. Move "
        "axis 1 to the end first.",
        (".movedim(1, -1)", ""),
    ),
    "result_of_the_call": (
        "The sums become None: dist.all_reduce writes the sum into its argument and returns None. Call it, and "
        "continue with that argument.",
        ("dist.all_reduce(sums)", "sums = dist.all_reduce(sums)"),
        ("dist.all_reduce(squares)", "squares = dist.all_reduce(squares)"),
    ),
    "own_shard": (
        "These are the moments of each rank's own shard: what a BatchNorm layer does that knows nothing of other "
        "ranks. Add up sums and counts over the ranks with dist.all_reduce.",
        ("dist.all_reduce(sums)", "pass"),
        ("dist.all_reduce(squares)", "pass"),
    ),
    "variances_averaged": (
        "The variance is the mean of the ranks' variances; it lacks how far the means of the ranks lie apart. Take "
        "the squared distances from the mean of all ranks.",
        ("values - mean", "values - values.mean(0)"),
    ),
    "mean_of_means": (
        "The means of the ranks are averaged as if all had equally many samples. Add up sums and "
        "counts, and divide at the end.",
        ("values.sum(0)", "values.mean(0)"),
        ("sums[:-1] / n", "sums[:-1] / dist.get_world_size()"),
    ),
    "averages_of_both": (
        "Means and variances of the ranks are averaged. That gives each rank the same weight, and the variance lacks "
        "how far the ranks' means lie apart. Add up sums and counts, then squared distances from the mean of all.",
        ("values.sum(0), values.new_tensor([len(values)])", "values.mean(0), values.new_ones(1)"),
        ("(values - mean).square().sum(0)", "values.var(0, correction=0)"),
    ),
    "sums_in_the_dtype_of_x": (
        "The sums have the dtype of x: float16 ends at 65,504, and float32 counts to 16,777,216 only. Add up and send "
        "float64, and convert at the end.",
        (".double()", ""),
    ),
    "unbiased": (
        "The variance is divided by n - 1. A layer normalises with the biased variance: divide by n.",
        ("squares / n", "squares / (n - 1)"),
    ),
    "over_the_batch_only": (
        "Images keep their height and width: the moments are taken over axis 0 only. A channel has one mean and one "
        "variance, over all places of all images.",
        (".movedim(1, -1).reshape(-1, x.shape[1])", ".flatten(1)"),
        ("mean.to(x.dtype)", "mean.to(x.dtype).view(x.shape[1:])"),
        ("n).to(x.dtype)", "n).to(x.dtype).view(x.shape[1:])"),
    ),
    "nan_of_nothing": (
        "A rank without samples spoils all the others: the mean of nothing is nan, and nan times 0 is nan too. Send "
        "sums, which are 0 there, and not means.",
        ("values.sum(0)", "values.mean(0) * len(values)"),
    ),
    "an_operation_each": (
        "One operation for each number is many messages, and each of them waits for the slowest rank. Put the sums "
        "and the count into one tensor.",
        ("torch.cat([values.sum(0), values.new_tensor([len(values)])])", "values.sum(0)"),
        (
            "n = sums[-1]\n    mean = sums[:-1] / n",
            "n = values.new_tensor(len(values))\n    dist.all_reduce(n)\n    mean = sums / n",
        ),
    ),
}


@mistake(
    "The mean of the squares less the square of the mean loses all digits where the mean is large: at 1e4 the squares "
    "are 1e8, and the spacing of float32 there is 8. Square distances from the mean.",
)
def one_pass(x):
    values = x.movedim(1, -1).reshape(-1, x.shape[1])
    sums = torch.cat([values.sum(0), values.square().sum(0), values.new_tensor([len(values)])])
    dist.all_reduce(sums)
    mean, square = (sums[:-1] / sums[-1]).chunk(2)
    return mean, square - mean.square()


@mistake(
    "You return the result of dist.all_reduce, which is None: it writes the sum into its argument. Call it, and "
    "use the argument afterwards.",
)
def returned_call(x):
    return dist.all_reduce(x.clone())


@mistake(
    "Mean and variance are None: dist.all_reduce writes the sum into its argument and returns None. Call it, and use "
    "the argument afterwards.",
)
def pair_of_calls(x):
    return dist.all_reduce(x.mean(0)), dist.all_reduce(x.var(0))


@mistake("All samples travel to all ranks, so the bytes grow with the batch. Send sums and counts.")
def all_samples_sent(x):
    shards = [None] * dist.get_world_size()
    dist.all_gather_object(shards, x.movedim(1, -1).reshape(-1, x.shape[1]).double())
    variance, mean = torch.var_mean(torch.cat(shards), 0, correction=0)
    return mean.to(x.dtype), variance.to(x.dtype)


@alternative
def pairwise_update(x):
    """Chan et al.: each rank sends count, mean and squares, and every rank merges them one by one."""
    channels = x.shape[1]
    flat = x.transpose(0, 1).reshape(channels, -1).double()
    mine = flat.new_zeros(3, channels)
    if flat.numel():
        mine[0], mine[1] = flat.shape[1], flat.mean(1)
        mine[2] = flat.var(1, correction=0) * flat.shape[1]
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    count, mean, squares = torch.zeros_like(mine)
    for n, m, s in parts:
        if n.max() > 0:
            apart, both = m - mean, count + n
            squares = squares + s + apart.square() * count * n / both
            mean, count = mean + apart * n / both, both
    return mean.to(x.dtype), (squares / count).to(x.dtype)


@alternative
def sums_in_float64(x):
    axes = [axis for axis in range(x.dim()) if axis != 1]
    wide = x.double()
    buffer = torch.stack(
        [wide.sum(axes), wide.square().sum(axes), torch.full_like(wide.sum(axes), x[:, 0].numel())]
    )
    dist.all_reduce(buffer)
    mean, square = buffer[0] / buffer[2], buffer[1] / buffer[2]
    return mean.to(x.dtype), (square - mean * mean).to(x.dtype)


@alternative
def gathered_into_one_tensor(x):
    """Between and within: the variance of the means, by weight, and the mean of the variances."""
    values = x.flatten(2).permute(0, 2, 1).flatten(0, 1) if x.ndim == 4 else x
    variance, mean = torch.var_mean(values.double(), 0, correction=0)
    mine = torch.stack([torch.full_like(mean, len(values)), mean, variance]).nan_to_num().flatten()
    table = mine.new_empty(dist.get_world_size() * len(mine))
    dist.all_gather_into_tensor(table, mine)
    n, means, variances = table.view(dist.get_world_size(), 3, -1).unbind(1)
    share = n / n.sum(0)
    mean = (share * means).sum(0)
    return [mean.to(x.dtype), (share * (variances + (means - mean) ** 2)).sum(0).to(x.dtype)]
