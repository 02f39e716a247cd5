"""Train one layer on all processes that torchrun starts: the smallest complete script.

    torchrun --standalone --nproc-per-node 2 scripts/smallest_ddp.py

Unit 02, part 4, prints this file and runs it.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")  # "nccl" on GPUs, with the device of LOCAL_RANK
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(1000, 20), torch.randint(2, (1000,)))
bare = torch.nn.Linear(20, 2)
model = DistributedDataParallel(bare)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch_size=50, sampler=sampler)  # one for all epochs
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    first = list(sampler)[:3]
    line = f"rank {rank}, epoch {epoch}: {len(loader)} steps, the first samples are {first}\n"
    print(line, end="", flush=True)  # one write, so lines of two ranks do not mix
if rank == 0:  # one file for all ranks, with the names of the bare model
    torch.save(bare.state_dict(), "model.pt")
dist.destroy_process_group()

# ---- not printed, and not to copy: without it, torch 2.13 aborts now and then while Python ends
import os  # noqa: E402
import sys  # noqa: E402

sys.stdout.flush()
os._exit(0)
