"""A bigram model without modules, optimizers or loaders: weights are moved by hand."""

import torch

torch.manual_seed(0)
text = torch.randint(27, (4000,))
weights = torch.randn(27, 27, requires_grad=True)
for _ in range(100_000):
    rows = torch.randint(len(text) - 1, (64,))
    loss = torch.nn.functional.cross_entropy(weights[text[rows]], text[rows + 1])
    weights.grad = None
    loss.backward()
    weights.data -= 0.1 * weights.grad
