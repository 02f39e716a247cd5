"""Data for record files whose rows are their own numbers, for tests and the processes that they start."""

import numpy as np

ROWS = 10_000


class Numbered:
    """Rows that hold their own number everywhere, plus `shift`: a row of which a part is missing is seen.

    `at_end`, a function that can be pickled, is called before the last rows are read.
    """

    columns = 100

    def __init__(self, shift, rows=ROWS, at_end=None):
        self.rows, self.seed, self.shift, self.at_end = rows, shift, shift, at_end

    @property
    def x(self):
        return self

    @property
    def y(self):
        return np.arange(self.rows, dtype=np.float32) + self.shift

    def __getitem__(self, part):
        if part.stop == self.rows and self.at_end:
            self.at_end()
        return np.repeat(self.y[part, None], self.columns, axis=1)
