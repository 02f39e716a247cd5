"""Ranks: real processes, a virtual network, and a slow network card."""
