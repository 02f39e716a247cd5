"""Files that are written whole, and what fits in the memory and on the disk of this machine."""
