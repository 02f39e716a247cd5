"""Masters to notebooks: build, check the form and the prose, execute, start a new exercise."""
