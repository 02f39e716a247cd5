"""Masters to notebooks: build, lint, execute, the class release."""

import sys

sys.modules["rfc3987_syntax"] = None  # jsonschema's, for addresses, which notebooks have none of: two seconds of CPU
