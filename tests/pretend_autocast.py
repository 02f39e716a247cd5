"""Autocast on the pretended CUDA device (pretend_cuda.py): which operations cast to 16 bits, and which to 32.

torch has a place for the autocast of a device that it does not know, the key AutocastPrivateUse1, and leaves it empty.
The lists are those that "Automatic Mixed Precision package" in PyTorch's documentation gives for CUDA, as far as the
course uses them.  What casts to the widest type of its operands needs nothing: there is no other type in the course.
"""

import torch
from torch.utils._pytree import tree_map

NAME = "pretend"
KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
TO_16_BITS = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d linear
    matmul mm mv prelu scaled_dot_product_attention
""".split()
TO_32_BITS = """
    acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity cross_entropy_loss
    cumprod.default cumsum.default dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss
    layer_norm log log10 log1p log2 log_softmax.int logsumexp mse_loss nll_loss nll_loss_nd norm pow.Tensor_Scalar
    pow.Tensor_Tensor prod.default prod.dim_int reciprocal renorm rsqrt sinh smooth_l1_loss softmax.int
    soft_margin_loss softplus sum.default sum.dim_IntList tan triplet_margin_loss
""".split()
DTYPE = {"cuda": torch.float16}  # of autocast where none is asked for


def _operations(name):
    """The operations of the packet `name`, or the one overload that it names, but for those that write."""
    packet, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, packet)
    every = [getattr(packet, one) for one in ([overload] if overload else packet.overloads())]
    return [one for one in every if not one._schema.is_mutable]


def _casting(operation, dtype):
    """`operation` on operands of dtype(), where these are floats of at most 32 bits on the device."""

    def cast(x):
        fits = isinstance(x, torch.Tensor) and x.is_cuda and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype()) if fits else x

    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(KEY):
            return operation(*tree_map(cast, args), **tree_map(cast, kwargs))

    return kernel


def _refused(*args, **kwargs):
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer. In this case, combine the two "
        "layers using torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss."
    )


OTHERS = torch.library.Library("_", "IMPL")  # both are kept: the kernels go with them
OTHERS.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
LIBRARY = torch.library.Library("aten", "IMPL")
for names, kind in ((TO_16_BITS, lambda: torch.get_autocast_dtype(NAME)), (TO_32_BITS, lambda: torch.float32)):
    for operation in [operation for name in names for operation in _operations(name)]:
        LIBRARY.impl(operation.name(), _casting(operation, kind), "AutocastPrivateUse1")
LIBRARY.impl("binary_cross_entropy", _refused, "AutocastPrivateUse1")


def _inside(device_type):
    return NAME if device_type == "cuda" else device_type


class Autocast(torch.autocast):
    """torch.autocast, in which "cuda" is the pretended device."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        dtype = DTYPE.get(device_type) if dtype is None else dtype
        super().__init__(_inside(device_type), dtype, enabled, cache_enabled)


def functions():
    """{name in torch: its replacement}, of the functions that ask about autocast of "cuda" and set it."""
    one = {name: getattr(torch, name) for name in ("is_autocast_enabled", "get_autocast_dtype")}
    two = {name: getattr(torch, name) for name in ("set_autocast_enabled", "set_autocast_dtype")}
    made = {name: lambda kind="cuda", of=of: of(_inside(kind)) for name, of in one.items()}
    made |= {name: lambda kind, value, of=of: of(_inside(kind), value) for name, of in two.items()}
    return made | {"autocast": Autocast}
