"""Given models, training loops and metrics of units 03, 05 and 06."""
