"""A real Slurm of two nodes: grading with a task killed and a node lost, training that loses a node; tests/slurm.py."""

import pytest
import slurm
from walks import assert_all_steps


def test_slurm_grades_and_trains_while_tasks_and_nodes_die(tmp_path):
    if reason := slurm.missing():
        pytest.skip(reason)
    assert_all_steps(slurm.call, tmp_path, (step.__name__ for step in slurm.STEPS))
