"""The vocabulary that probes share: what a call raises, what a tensor is, what is counted.

Modules by topic: errors, values, tensors, order, randomness, counting, threads and files. Nothing
here knows an exercise or its answer; what only one unit needs stays in the package of that unit, in
a module named for what it holds.
"""
