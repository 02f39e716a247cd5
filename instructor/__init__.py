"""What an instructor and an author have, and a class does not.

Never in the class's wheel, never mounted in a jail.
"""

import sys

# jsonschema's, for addresses, which notebooks have none of: two seconds of CPU
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
