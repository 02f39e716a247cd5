"""Files that are written whole, what fits in this machine's memory and on its disk, is it busy."""
