"""Given models, training loops and metrics of units 03, 05, 06 and 07."""
