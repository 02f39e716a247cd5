"""Wrong answers to the exercises of 03_large_batch that learners give, each wrong in one idea, and what to say."""

import torch

from course.checks.engine import mistake


@mistake("rank_metrics", "A tie is counted for the positive (>), so a model that says the same of every item scores 1. Use >=.")
def optimistic_ties(scores, duplicate, k=10):
    rank = ((scores[:, 1:] > scores[:, :1]) & ~duplicate[:, 1:]).sum(1)
    hit = rank < k
    return hit.double().mean().item(), (hit / torch.log2(rank + 2.0)).double().mean().item()
