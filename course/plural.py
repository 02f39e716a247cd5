"""A number with its noun: 1 worker, 2 workers."""


def counted(n: int, noun: str) -> str:
    """Text "1 worker" or "2 workers", with commas between thousands."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
