"""The master of a small part with one exercise, for tests of the lint and of new exercises."""

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
