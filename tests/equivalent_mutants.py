"""Mutants that no check can reject because they compute the same, each with the reason why."""

FREE = "the learner's own experiment: any bias, any rate and any number of steps show whether it moves"
UNREAD = "these places are overwritten before they are read, or never read"
SEEDS = "any seeds do that differ for each step and rank"
SUMMARY = "Lightning writes its summary of the model to the log, not to stdout or a file"
GPUS = "a check's ranks compute on the CPU; only a machine with GPUs could show it"
WITHOUT_GPU = "without a GPU there is no such state; with one, the facts about dropout show it"
RANK_SEEDS = "any seeds do that are equal and different where they must be"
EQUIVALENT = {
    "rank_seeds: seed + data_rank * tensor_size + tensor_rank => seed + data_rank * tensor_size - tensor_rank "
    "in return {'whole parameters': seed, 'split parameters': seed + tensor_rank, 'whole dropout':": RANK_SEEDS,
    "rank_seeds: seed + data_rank * tensor_size => seed - data_rank * tensor_size "
    "in return {'whole parameters': seed, 'split parameters': seed + tensor_rank, 'whole dropout':": RANK_SEEDS,
    "rank_seeds: seed + data_rank => seed - data_rank "
    "in return {'whole parameters': seed, 'split parameters': seed + tensor_rank, 'whole dropout':": RANK_SEEDS,
    "rank_seeds: seed + tensor_rank => seed - tensor_rank "
    "in return {'whole parameters': seed, 'split parameters': seed + tensor_rank, 'whole dropout':": RANK_SEEDS,
    "ResumingLoader: 0 => 1 in def __init__(self, dataset, batch_size, num_workers=0, seed=0):": (
        "a default in a given line: any number of workers gives the same batches"
    ),
    "ResumingLoader: 0 => 1 in def __init__(self, dataset, batch_size, num_workers=0, seed=0): (2)": (
        "a default in a given line: any seed is as good"
    ),
    "ResumingLoader: DataLoader(self.dataset, batch_sampler=indices, num_workers=self.num_workers, **fork"
    "s) => DataLoader(self.dataset, batch_sampler=indices, num_workers=self.num_workers) in return DataLo"
    "ader(self.dataset, batch_sampler=indices, num_workers=self.num_workers, **for": (
        "where fork is the default start method, forks says the same"
    ),
    "halving_doubling: rank > partner => rank >= partner in if rank > partner:": "no rank is its own partner",
    "halving_doubling: if rank > partner: => if not rank > partner: in if rank > partner:": (
        "the halves change places everywhere; either may go to either rank"
    ),
    "checkpoint: for gpu, state in zip(gpus, ctx.states[1], strict=True): => pass in for gpu, state in zip(gpus, "
    "ctx.states[1], strict=True):": WITHOUT_GPU,
    "checkpoint: torch.cuda.set_rng_state(state, gpu) => pass in torch.cuda.set_rng_state(state, gpu)": WITHOUT_GPU,
    "best_plan: if not fitting: => pass in if not fitting:": "min() of no plans raises ValueError, too",
    "best_plan: raise ValueError('no plan runs and fits; take more devices or a smaller model.') => pass in raise "
    "ValueError('no plan runs and fits; take more devices or a smaller model.')": (
        "min() of no plans raises ValueError, too"
    ),
    "one_cycle: 3 => 4 in line = sum((step > right for right, *_ in points[1:3]))": (
        "no step lies beyond the last point"
    ),
    "one_cycle: step > right => step >= right in line = sum((step > right for right, *_ in points[1:3]))": (
        "where two lines meet, both have the same value"
    ),
    "mean_and_std: 0.0 => 1.0 in n, mean, squares = (0, 0.0, 0.0)": (
        "the mean of no rows has the weight 0: the first batch replaces it, whatever it was"
    ),
    "shows_frozen_bias: 1 => 2 in bias = torch.nn.Parameter(torch.zeros(1))": FREE,
    "shows_frozen_bias: 1.0 => 2.0 in optimizer = optimizer_class([bias], lr=1.0)": FREE,
    "lightning_fit: False => True in trainer = pl.Trainer(accelerator='cpu', devices=ranks, max_epochs=ep"
    "ochs, logger=False, en (4)": SUMMARY,
    "lightning_fit: pl.Trainer(accelerator='cpu', devices=ranks, max_epochs=epochs, logger=False, enable_"
    "check => pl.Trainer(accelerator='cpu', devices=ranks, max_epochs=epochs, logger=False, enable_check "
    "in trainer = pl.Trainer(accelerator='cpu', devices=ranks, max_epochs=epochs, logger=False, en (2)": SUMMARY,
    "train_ddp: 1000003 * options.seed + world_size * step + rank => 1000003 * options.seed + world_size * "
    "step - rank in torch.manual_seed(1000003 * options.seed + world_size * step + rank)": SEEDS,
    "train_ddp: 1000003 * options.seed + world_size * step => 1000003 * options.seed - world_size * step in "
    "torch.manual_seed(1000003 * options.seed + world_size * step + rank)": SEEDS,
    "train_ddp: 1000003 => 1000004 in torch.manual_seed(1000003 * options.seed + world_size * step + rank)": SEEDS,
    "train_ddp: 0 => 1 in loader = DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin": (
        "workers may live on: they draw what the sampler gives"
    ),
    "train_ddp: DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin_memory="
    "o => DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, persistent_w in l"
    "oader = DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin": (GPUS),
    "train_ddp: DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin_memory="
    "o => DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin_memory=o in l"
    "oader = DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin": (
        "workers may be started for each epoch"
    ),
    "train_ddp: DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin_memory="
    "o => DataLoader(options.dataset, share, sampler=left, pin_memory=on_gpu, persistent_workers=opt in l"
    "oader = DataLoader(options.dataset, share, sampler=left, num_workers=options.workers, pin": (
        "workers change who reads, not what is trained"
    ),
    "train_ddp: 1 => 2 in losses.append(total.item() / max(1, count * world_size))": (
        "two ranks or more have at least one sample each"
    ),
    "train_ddp: True => False in images = images.to(device, non_blocking=True)": GPUS,
    "train_ddp: True => False in labels = labels.to(device, non_blocking=True)": GPUS,
    "train_ddp: file.flush() => pass in file.flush()": "torch.save flushes the file that it is given, at its end",
    "train_ddp: device = torch.device('cuda', local_rank) => pass in device = torch.device('cuda', local_rank)": GPUS,
    "train_ddp: dist.init_process_group('nccl', device_id=device) => pass in dist.init_process_group('nccl', "
    "device_id=device)": GPUS,
    "train_ddp: local_rank = int(os.environ['LOCAL_RANK']) => pass in local_rank = int(os.environ['LOCAL_RANK'])": GPUS,
    "train_ddp: images = images.to(device, non_blocking=True) => pass in images = images.to(device, "
    "non_blocking=True)": GPUS,
    "train_ddp: labels = labels.to(device, non_blocking=True) => pass in labels = labels.to(device, "
    "non_blocking=True)": GPUS,
    "train_ddp: images.to(device, non_blocking=True) => images.to(device) in images = images.to(device, "
    "non_blocking=True)": GPUS,
    "train_ddp: labels.to(device, non_blocking=True) => labels.to(device) in labels = labels.to(device, "
    "non_blocking=True)": GPUS,
    "train_ddp: torch.cuda.set_device(device) => pass in torch.cuda.set_device(device)": GPUS,
    "BucketBatchSampler: 0 => 1 in def __init__(self, lengths, batch_size, window, seed=0):": (
        "any seed may be the one that nobody chose"
    ),
    "find_thresholds: 10 => 11 in def find_thresholds(lengths, k, num_trials=10, cost_fn=lambda length: length, "
    "generator=No": "any number of trials may be the one that nobody chose",
    "best_thresholds: 0 => 1 in choice = [0] * (m + 1)": UNREAD,
    "best_thresholds: 0.0 => 1.0 in before = [0.0] + [float('inf')] * m": (
        "the same number is added to every sum that is compared"
    ),
    "best_thresholds: 1 => 2 in least = [float('inf')] * (m + 1)": UNREAD,
    "best_thresholds: 1 => 2 in choice = [0] * (m + 1)": UNREAD,
    "best_thresholds: j = m => pass in j = m": "the loop over j has ended at m",
    "segment_max: numbers.repeat_interleave(lengths, output_size=len(values)) => "
    "numbers.repeat_interleave(lengths) in "
    "owner = numbers.repeat_interleave(lengths, output_size=len(values))": (
        "the size of the result, said beforehand, only saves a wait for the GPU"
    ),
    "token_budget_batches: 0 => 1 in longest = 0": (
        "a length is at least 1, so the longest of a batch that begins may as well be 1"
    ),
    "token_budget_batches: 0 => 1 in longest = 0 (2)": (
        "a length is at least 1, so the longest of a batch that begins may as well be 1"
    ),
    "draw_rows: x @ w + b + rng.standard_normal(rows, dtype=np.float32) => "
    "x @ w + b - rng.standard_normal(rows, dtype=np.float32) in "
    "y = x @ w + b + rng.standard_normal(rows, dtype=np.float32)": ("normal noise is as likely with the other sign"),
}
