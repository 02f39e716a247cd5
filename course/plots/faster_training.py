"""Figures of unit 06_faster_training: measurements -> *plots* -> a figure per experiment.  Nothing is computed here."""

# part 1, find out what is slow


# part 2, fewer steps


# part 3, cheaper steps


# part 4, memory for time, and the race
