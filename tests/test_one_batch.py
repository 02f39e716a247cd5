"""What crosses from process to process for a batch of a DataLoader is counted."""

import warnings

import pytest
import torch

from course.loading import one_batch


@pytest.mark.parametrize(("workers", "tensors"), [(1, 1), (2, 3)])
def test_a_message_each_way_per_batch_and_a_connection_per_tensor(workers, tensors):
    if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":
        pytest.skip("memory is not passed as an open file here")
    items = list(torch.arange(12).reshape(12, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = one_batch.messages(items, 4, workers, tensors)
    assert found == {"sent": 3, "received": 3, "connections": 3 * tensors}
