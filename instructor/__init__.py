"""What an instructor and an author have, and a class does not: never in the class's wheel, never
mounted in a jail.
"""

import sys

sys.modules["rfc3987_syntax"] = (
    None  # jsonschema's, for addresses, which notebooks have none of: two seconds of CPU
)
