"""One module a data set: prepared files -> tensors.  Where the real data is missing, an embedded stand-in is made."""
