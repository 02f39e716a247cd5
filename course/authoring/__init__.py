"""What authors and instructors run: masters -> notebooks -> grades.  Only here jupytext and nbgrader are imported."""
