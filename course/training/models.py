"""Two recommenders and an image classifier, for training and for evaluation.

NeuMF (He et al. 2017, "Neural Collaborative Filtering", section 3.4) and the dot product that
Rendle et al. 2020 ("Neural Collaborative Filtering vs. Matrix Factorization Revisited") compare it
with score (user, item) pairs. FashionCNN, a small convolutional network, classifies 28 x 28 images
into ten classes. Losses, optimizers and negatives belong to training.

NeuMF rearranges the formulas of the paper for speed. Each rewrite is exact except for rounding;
dropout keeps its distribution, not its sequence of random numbers. tests/test_models.py compares it
with the textbook version.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# layers[0] is the width of the concatenated MLP embeddings: user and item get layers[0] // 2 each.
# "factors" is the size of the GMF embeddings. With the paper's tower each layer halves and the
# last has as many units as factors.
NEUMF_SIZES = {
    # defaults of NVIDIA's ncf.py
    "nvidia": dict(factors=64, layers=(256, 256, 128, 64), dropout=0.5),
    # He et al. 2017, section 4.1, 8 predictive factors
    "paper": dict(factors=8, layers=(64, 32, 16, 8), dropout=0.0),
    # the same tower with 32
    "paper32": dict(factors=32, layers=(256, 128, 64, 32), dropout=0.0),
}
GROUPS = 8  # of channels, in GroupNorm
# From so many times the rows of its tables on, a batch multiplies the tables and not its own rows.
# Below, the wider lookups eat what the products save.
TABLE_PRODUCTS_FROM = 2


class NeuMF(nn.Module):
    """Logits of GMF and MLP side by side.

    model(users, items), two int64 tensors (batch,) -> float32 (batch,)

    Args:
        factors: size of the two GMF embeddings, multiplied element by element.
        layers: widths of the MLP: layers[0], even, is both MLP embeddings together, then one linear
            layer per width.
        dropout: share of activations set to zero after each MLP layer in train mode, 0 <= dropout <
            1.
        std: deviation of the initial embeddings.

    Initialisation: embeddings normal (deviation 0.01 in He et al., section 4.1); MLP weights Glorot
    uniform, output weights LeCun uniform, biases torch's default, as in NVIDIA's neumf.py.
    """

    def __init__(
        self,
        n_users: int,
        n_items: int,
        factors: int = 8,
        layers: Sequence[int] = (64, 32, 16, 8),
        dropout: float = 0.0,
        std: float = 0.01,
    ):
        super().__init__()
        self.dropout = dropout
        self.gmf_user = nn.Embedding(n_users, factors)
        self.gmf_item = nn.Embedding(n_items, factors)
        self.mlp_user = nn.Embedding(n_users, layers[0] // 2)
        self.mlp_item = nn.Embedding(n_items, layers[0] // 2)
        self.mlp = nn.ModuleList()
        for width, next_width in zip(layers, layers[1:], strict=False):
            self.mlp.append(nn.Linear(width, next_width))
        self.output = nn.Linear(factors + layers[-1], 1)
        for table in (self.gmf_user, self.gmf_item, self.mlp_user, self.mlp_item):
            nn.init.normal_(table.weight, std=std)
        for layer in self.mlp:
            nn.init.xavier_uniform_(layer.weight)
        limit = math.sqrt(3 / self.output.in_features)
        nn.init.uniform_(self.output.weight, -limit, limit)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        p = self.dropout if self.training else 0.0
        hidden = relu_dropout_(self._first_layer(users, items), p)
        for layer in self.mlp[1:]:
            hidden = F.linear(hidden, _after_dropout(layer.weight, p), layer.bias)
            hidden = relu_dropout_(hidden, p)  # (batch, next width)
        # The output layer multiplies its halves separately, so they are never concatenated.
        factors = self.gmf_user.embedding_dim
        of_gmf, of_mlp = self.output.weight.split(
            (factors, self.output.in_features - factors), dim=1
        )
        mlp = F.linear(hidden, _after_dropout(of_mlp, p), self.output.bias).squeeze(1)
        # Its GMF half goes into the user table: w . (u * i) = (w * u) . i
        gmf_user = lookup(self.gmf_user.weight * of_gmf, users)
        gmf_item = lookup(self.gmf_item.weight, items)
        return (mlp + (gmf_user * gmf_item).sum(1)).float()

    def _first_layer(self, users: Tensor, items: Tensor) -> Tensor:
        """W [user, item] + b, shape (batch, layers[1]), without concatenated embeddings.

        W [user, item] = Wu user + Wi item
        """
        of_user, of_item = self.mlp[0].weight.chunk(2, dim=1)
        bias = self.mlp[0].bias
        user_table = self.mlp_user.weight
        item_table = self.mlp_item.weight
        if len(users) >= TABLE_PRODUCTS_FROM * (len(user_table) + len(item_table)):
            # The batch repeats users and items: multiply each table row once, not each batch row.
            user_part = lookup(F.linear(user_table, of_user, bias), users)
            item_part = lookup(F.linear(item_table, of_item), items)
        else:
            user_part = F.linear(lookup(user_table, users), of_user, bias)
            item_part = F.linear(lookup(item_table, items), of_item)
        return user_part + item_part


def _after_dropout(weight: Tensor, p: float) -> Tensor:
    """The weights of a layer whose inputs `relu_dropout_` has zeroed with probability `p`.

    Dropout divides what it keeps by 1 - p. Weights are far smaller than activations, so they carry
    the factor: W (h / (1 - p)) = (W / (1 - p)) h.
    """
    return weight / (1 - p) if p else weight


class DotProduct(nn.Module):
    """Logits of matrix factorisation: bias + user bias + item bias + user . item.

    Called like NeuMF.

    Args:
        std: deviation of the initial embeddings; biases start at 0.

    Source: Rendle et al. 2020, section 3.1.
    """

    def __init__(self, n_users: int, n_items: int, factors: int = 8, std: float = 0.1):
        super().__init__()
        self.user = nn.Embedding(n_users, factors)
        self.item = nn.Embedding(n_items, factors)
        self.user_bias = nn.Embedding(n_users, 1)
        self.item_bias = nn.Embedding(n_items, 1)
        self.bias = nn.Parameter(torch.zeros(()))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=std)
        for table in (self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        dot = (lookup(self.user.weight, users) * lookup(self.item.weight, items)).sum(1)
        biases = lookup(self.user_bias.weight, users) + lookup(self.item_bias.weight, items)
        return (dot + biases.squeeze(1) + self.bias).float()


class FashionCNN(nn.Module):
    """Logits of ten classes.

    model(images), float32 (n, 1, 28, 28) as of datasets.fashion.floats -> float32 (n, 10)

    Two blocks of convolution, norm, ReLU and max-pooling, then three linear layers; some 1,475,000
    parameters, nearly all of them in the first linear layer. The linear layers have a ReLU between
    them too: without it the three would be one linear map, which is what many published versions of
    this network compute.

    Args:
        dropout: share of the 600 activations set to zero in train mode, 0 <= dropout < 1.
        norm: "batch"; "group", 8 groups of channels in each image; or None. BatchNorm uses the mean
            and variance of the images of its own process, so N processes with a share of a batch
            each compute another function than one process with all of it. The other two compute the
            same function however a batch is divided.

    Initialisation: torch's default.
    """

    def __init__(self, dropout: float = 0.25, norm: str | None = "batch"):
        super().__init__()
        norms = {
            "batch": nn.BatchNorm2d,
            "group": partial(nn.GroupNorm, GROUPS),
            None: nn.Identity,
        }
        make_norm = norms[norm]
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),  # (n, 32, 28, 28)
            make_norm(32),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (n, 32, 14, 14)
            nn.Conv2d(32, 64, 3),  # (n, 64, 12, 12)
            make_norm(64),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (n, 64, 6, 6)
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(64 * 6 * 6, 600),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(600, 120),
            nn.ReLU(),
            nn.Linear(120, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.convolutions(images)).float()


def lookup(table: Tensor, rows: Tensor) -> Tensor:
    """Rows of `table`, shape (len(rows), columns): F.embedding with a faster gradient.

    On the CPU the gradient of F.embedding reads the whole batch once per thread; that of
    index_select reads it once.
    """
    return table.index_select(0, rows)


def relu_dropout_(x: Tensor, p: float) -> Tensor:
    """Apply ReLU to `x` in place and zero each element with probability `p`; return `x`.

    WITHOUT dropout's division by 1 - p: the caller divides the weights of the next layer.

    Args:
        x: output of a layer that nothing else needs: float32 or bfloat16 (batch, width).
    """
    if p:
        # unseen by autograd: what is dropped is 0 after relu, where relu has gradient 0
        drop_(x.detach(), p)
    return F.relu_(x)


def drop_(x: Tensor, p: float) -> None:
    """Zero each element of `x` with probability `p`, in place and without a gradient.

    Follows torch.manual_seed. F.dropout on the CPU draws a 32-bit number per element on one core,
    which is half the time of NeuMF's training with dropout. For p = 0.5 one bit per element is
    enough, so a 64-bit number serves 64 elements. A GPU needs no such trick.

    Args:
        x: contiguous float32, float64, bfloat16 or float16.
    """
    if x.device.type != "cpu" or p != 0.5:
        x.mul_(torch.empty_like(x).bernoulli_(1 - p))
        return
    bits = 8 * x.element_size()
    integer = {16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]
    draws = torch.empty(math.ceil(x.numel() / 64), dtype=torch.int64)
    words = draws.random_(-(2**63), None).view(integer)
    # Bit j of every word, shifted to the sign bit and back, becomes an integer of all ones or all
    # zeros.
    shifts = torch.arange(bits, dtype=integer)[:, None]
    mask = (words << shifts).bitwise_right_shift_(bits - 1)  # (bits, words)
    x.view(-1).view(integer).bitwise_and_(mask.view(-1)[: x.numel()])
