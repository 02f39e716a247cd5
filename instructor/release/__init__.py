"""Make what a class gets: which exercises are asked, which are given, what is recorded."""
