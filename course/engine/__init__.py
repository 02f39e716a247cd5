"""The engine of checks: an exercise, a run of its probe, its limits, what differs, the report."""
