"""What authors and instructors run: masters -> notebooks -> grades.  The only place that imports jupytext or nbgrader."""
