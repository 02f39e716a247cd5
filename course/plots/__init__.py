"""Figures of the notebooks, one module per unit, and one of predictions in all units.

Each function draws one idea and returns a Figure.

Predictions of the learner are drawn hollow, next to what was measured.
"""
