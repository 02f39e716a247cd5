"""The two halves of an all-reduce for probes of sharding, in no form that an exercise asks for."""

from collections.abc import Callable

import torch
import torch.distributed as dist

Collective = Callable[[torch.Tensor], torch.Tensor]


def logged_halves(log: list[str]) -> tuple[Collective, Collective]:
    """(reduce_scatter, all_gather) that note in `log` which was called, with how many numbers."""

    def reduce_scatter(flat: torch.Tensor) -> torch.Tensor:
        log.append(f"reduce_scatter of {len(flat)} numbers")
        total = sum(_from_all(flat))
        return total.chunk(dist.get_world_size())[dist.get_rank()].clone()

    def all_gather(shard: torch.Tensor) -> torch.Tensor:
        log.append(f"all_gather of {len(shard)} numbers")
        return torch.cat(_from_all(shard))

    return reduce_scatter, all_gather


def _from_all(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that all ranks give to the same call, in the order of ranks."""
    rank = dist.get_rank()
    mine = tensor.detach().contiguous()
    tensors = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    tensors[rank].copy_(mine)
    others = [other for other in range(dist.get_world_size()) if other != rank]
    requests = []
    for other in others:
        requests.append(dist.isend(mine, other))
    for other in others:
        requests.append(dist.irecv(tensors[other], other))
    for request in requests:
        request.wait()
    return tensors
