"""A real Slurm of two nodes: grading with a task killed and a node lost, training that loses a node; tests/slurm.py."""

import slurm
from walks import assert_all_steps


def test_slurm_grades_and_trains_while_tasks_and_nodes_die(tmp_path):
    assert_all_steps(slurm, tmp_path, (step.__name__ for step in slurm.STEPS))
