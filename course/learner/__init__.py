"""A learner's answers, predictions and claims, and how far they are: kept next to the data."""
