"""Grade a class: submissions to scores, feedback and an item analysis."""

import sys

sys.modules["rfc3987_syntax"] = None  # jsonschema's, for addresses, which notebooks have none of: two seconds of CPU

BAR = "{percentage:3.0f} %|{bar:20}| {n}/{total} {elapsed} {desc}"  # of the command's progress bars
