"""The jail: run learners' code where it can neither reach nor forge anything."""
