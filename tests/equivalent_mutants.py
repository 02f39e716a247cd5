"""Mutants that no check can reject because they compute the same, each with the reason why."""

FREE = "the learner's own experiment: any bias, any rate and any number of steps show whether it moves"
GPUS = "a check's ranks compute on the CPU; only a machine with GPUs could show it"
EQUIVALENT = {
    "mean_and_std: 0.0 => 1.0 in n, mean, squares = (0, 0.0, 0.0)": (
        "the mean of no rows has the weight 0: the first batch replaces it, whatever it was"
    ),
    "make_data: x @ w + b + rng.standard_normal(rows, dtype=np.float32) => x @ w + b - "
    "rng.standard_normal(rows, dtype=np.float32) in y = x @ w + b + rng.standard_normal(rows, dtype=np.float32)": (
        "noise that is symmetric about 0 may be added or taken off"
    ),
    "worker_plot: 4 => 5 in ax.errorbar(workers, seconds.mean(1), yerr=seconds.std(1), capsize=4)": (
        "caps of any length are caps"
    ),
    "fit_workers: error <= limit => error < limit in return next((model for error, model in fits if error <= limit))": (
        "the allowance is above 0, so the smallest error is below `limit`; no other error equals it to the last bit"
    ),
    "batches_drawn: return self.drawn => pass in return self.drawn": (
        "what a batch is, is the learner's choice: None is one too"
    ),
    "shows_frozen_bias: 1 => 2 in bias = torch.nn.Parameter(torch.zeros(1))": FREE,
    "shows_frozen_bias: 1.0 => 2.0 in optimizer = optimizer_class([bias], lr=1.0)": FREE,
    "shows_frozen_bias: 10 => 11 in for _ in range(10):": FREE,
    "train_ddp: if device.type == 'cuda': => pass in if device.type == 'cuda':": GPUS,
    "train_ddp: torch.cuda.set_device(device) => pass in torch.cuda.set_device(device)": GPUS,
    "train_ddp: torch.load(options.checkpoint, map_location=device) => torch.load(options.checkpoint) in "
    "saved = torch.load(options.checkpoint, map_location=device)": GPUS,
}
