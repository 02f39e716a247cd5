"""Figures of the notebooks, one module per unit. Each function draws one idea and returns the
Figure.

Predictions of the learner are drawn hollow beside what was measured.
"""
