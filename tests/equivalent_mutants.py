"""Mutants that no check can reject because they compute the same, each with the reason why."""

EQUIVALENT = {}
