"""Masters to notebooks: build, lint, execute, the class release."""
