"""Make notebooks of masters: build, check form and prose, execute, start a new exercise."""
