"""Grade a class: submissions to scores, feedback and an item analysis."""
