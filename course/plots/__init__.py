"""Figures of the notebooks: numbers -> *plots*, one module a unit.  Each function draws one idea, returns the Figure.

Measures nothing, judges nothing.  Predictions of the learner are drawn hollow beside what was measured.
"""
