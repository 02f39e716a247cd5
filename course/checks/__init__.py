"""How answers are checked: engine.py runs and compares, one module a unit holds the probes of its
exercises.
"""
