"""Grade a class: submissions to scores, feedback and an item analysis."""

# of the command's progress bars
BAR = "{percentage:3.0f} %|{bar:20}| {n}/{total} {elapsed} {desc}"
