"""Counts in words."""


def counted(n: int, noun: str) -> str:
    """Text "1 worker" or "2 workers", with commas between thousands."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
