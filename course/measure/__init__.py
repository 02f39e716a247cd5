"""Measure seconds, bytes, memory and what the disk reads; judge and draw nothing."""
