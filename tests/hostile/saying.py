"""Saying too much: outputs, messages, exceptions."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell


@cell()
def prints_without_end():
    """Text without end."""
    while True:
        print("x" * 100_000)


@cell()
def writes_to_descriptors():
    """Text that goes around Python."""
    import os
    import subprocess

    for _ in range(100):
        os.write(1, b"x" * 10**6)
        os.write(2, b"x" * 10**6)
    subprocess.run("head -c 300000000 /dev/zero", shell=True)


@cell()
def shows_something_huge():
    """One output of 100 MB."""
    display({"text/plain": "x" * 10**8}, raw=True)
    display({"image/png": "x" * 10**8, "text/html": "x" * 10**8}, raw=True)


@cell()
def shows_scripts():
    """Outputs that run in the browser of whoever looks."""
    for kind in ("text/html", "application/javascript", "image/svg+xml", "text/latex", "text/markdown", "image/png"):
        display({kind: "<svg onload=alert(1)><script>alert(1)</script>"}, raw=True)
    print("\x1b]0;title\x07\x1b[2J\x9b31m <script>alert(1)</script>")
    raise ValueError("\x1b[2J<script>alert(1)</script>")


@cell()
def raises_something_huge():
    """A message of 100 MB, in a cell and in an answer."""

    def linear_warmup(*args):
        raise ValueError("x" * 10**8)

    raise type("E" * 10**6, (Exception,), {})("x" * 10**8)


@cell()
def raises_what_cannot_be_shown():
    """An exception without a text, in a cell and in an answer."""

    class Silent(BaseException):
        def __str__(self):
            raise self

        __repr__ = __str__

    def linear_warmup(*args):
        raise Silent

    raise Silent


@cell()
def raises_what_never_ends():
    """An exception whose text takes for ever."""

    class Endless(Exception):
        def __str__(self):
            while True:
                pass

    raise Endless
