"""A DeviceCopy has the values and views of its source, is safe to compute on, and frees its source after wait()."""

import pytest
import torch

from course.loading.copies import DeviceCopies

PRETENDED_CUDA = True  # see conftest.py


def host(*shape, device):
    """A tensor of random values as a loader's buffer is: pinned where the device is a GPU."""
    return torch.rand(*shape, pin_memory=device.type == "cuda")


def test_views_of_one_buffer_arrive_as_views_of_one_buffer(device):
    buffer = host(9, 8, device=device)
    x, y = buffer[:7, :5], buffer[:7, 5]
    copy = DeviceCopies(device).start((x, y))
    there = copy.tensors()
    assert type(there) is tuple and all(t.device.type == device.type for t in there)
    assert torch.equal(there[0].cpu(), x) and torch.equal(there[1].cpu(), y)
    assert [t.stride() for t in there] == [x.stride(), y.stride()]
    assert there[0].untyped_storage().data_ptr() == there[1].untyped_storage().data_ptr()
    assert there[0].untyped_storage().nbytes() <= buffer.nbytes


@pytest.mark.parametrize("wait_first", [False, True])
def test_after_wait_the_source_may_be_refilled(device, wait_first):
    buffer = host(2000, 500, device=device)
    before = buffer.clone()
    copy = DeviceCopies(device).start([buffer])
    there = None if wait_first else copy.tensors()
    copy.wait()
    copy.wait()
    buffer.fill_(-1)
    (there,) = there or copy.tensors()
    assert torch.equal(there.cpu(), before)


def test_tensors_of_several_storages_and_dtypes_keep_their_order(device):
    buffer = host(6, 4, device=device)
    sources = [torch.arange(5), buffer[2:, :3], torch.tensor(2.5), buffer[:2], buffer.T[1:3], buffer[:0]]
    there = DeviceCopies(device).start(sources).tensors()
    assert [t.dtype for t in there] == [s.dtype for s in sources]
    assert all(torch.equal(t.cpu(), s) for t, s in zip(there, sources, strict=True))


def test_memory_of_a_copy_in_use_is_not_given_to_the_next(device):
    copies, buffer = DeviceCopies(device), host(1000, 1000, device=device)
    sums = []
    for i in range(20):
        buffer.fill_(i % 8)
        copy = copies.start([buffer])
        sums.append(copy.tensors()[0].sum())  # on a GPU only queued: the next copy must not overtake it
        copy.wait()
        del copy
    assert [s.item() for s in sums] == [i % 8 * 1e6 for i in range(20)]
