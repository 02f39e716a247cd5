"""Grade a class: submissions to scores, feedback and an item analysis."""

BAR = "{percentage:3.0f} %|{bar:20}| {n}/{total} {elapsed} {desc}"  # of the command's progress bars
