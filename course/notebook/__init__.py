"""Notebooks and masters as data: cells and marks, units, parts and exercises, reference answers."""
