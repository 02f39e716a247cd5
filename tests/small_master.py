"""The master of a small part with one exercise, for tests of the lint and of new exercises."""

import nbformat

from course.errors import CourseError
from instructor.authoring import masters

HEADER = """# %% [markdown]
# # Nothing much, part 1: Return what you get
#
# **What is given back?**
#
# An introduction.
#
# **You will be able to**
#
# - return a value
#
# **Minutes** 5 core · 10 in all
#
# **Needs** nothing

"""
SETUP = """# %% locked="setup"
import course
from course.checks import large_batch as check

"""
GOOD = (
    HEADER
    + SETUP
    + """# %% [markdown]
# ### Exercise 1 · Return it
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1
#
# **Convention** from 0. **Source** none.
# <details><summary>1</summary>?</details>
# <details><summary>2</summary>!</details>

# %% solution="f"
def f(x):
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION

# %% test="f-visible" points=1
check.f(f)

# %% test="f-hidden" points=1
### BEGIN HIDDEN TESTS
check.f(f, seed=5)
### END HIDDEN TESTS
"""
)
MEASURES = """
# %% [markdown]
# ## Is it fast?
#
# **Predict**: how many times as fast is it?

# %%
predicted_speed = None

# %% tags=["experiment"]
print(f"{11 / 4} times")
print(course.score("00/1", "how many times as fast it is", predicted_speed, 11 / 4))

# %% [markdown]
# **We think** that nothing is slower. A slower one would show it.
#
# **Takeaway** It is fast.
"""


def faults_of(text, folder):
    """What the build says of the master with this `text`, as part 00_a/1_a in `folder`, which holds all masters.

    Its experiment printed "2.75 times, 64 of 99" when it was executed, in a minute.
    """
    (folder / "00_a").mkdir(exist_ok=True)
    (folder / "00_a" / "1_a.py").write_text(text)
    cell = nbformat.v4.new_code_cell(id="cell-008", metadata={"seconds": 60})
    cell.outputs = [nbformat.v4.new_output("stream", text="2.75 times, 64 of 99\n")]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "00_a" / "1_a.ipynb")
    try:
        masters.source_notebook("00_a", "1_a")
    except CourseError as error:
        return str(error)
    return ""
