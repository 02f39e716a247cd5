"""Measurements that anyone can rerun: `python -m course.benchmarks.NAME --help`."""
