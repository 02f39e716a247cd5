"""Bytes of its own in the connection with the grader."""
# ruff: noqa: F821, F841, B018

from hostile.attack import ENDED, LATE, cell


@cell(2, "bytes")
def says_it_will_say_more():
    """A length that nobody has room for."""
    import os

    os.write(200, b"\xff" * 8)


@cell(2, LATE)
def says_half():
    """Half a message, then nothing."""
    import os
    import time

    os.write(200, (1000).to_bytes(8, "little") + b"x")
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


@cell(2, "other than plain data")
def says_something_deep():
    """A nest for the grader's own parser."""
    import os

    text = b"[" * 1_000_000
    data = len(text).to_bytes(8, "little") + text
    os.write(200, len(data).to_bytes(8, "little") + data)


@cell(2, f"other than plain data|bytes|{ENDED}")  # the latter on a busy machine
def says_many_small_things():
    """A message that takes 20 times its size in the grader's memory."""
    import socket

    text = b"[" + b"{}," * 20_000_000 + b"0]"
    data = len(text).to_bytes(8, "little") + text
    socket.socket(fileno=200).sendall(len(data).to_bytes(8, "little") + data)


@cell(2, "other than plain data")
def says_what_is_nothing():
    """A tensor of a kind and size that there is not."""
    import os

    text = b'{"tensor": ["float32", [99999999999, 99999999], "cpu"]}'
    data = len(text).to_bytes(8, "little") + text
    os.write(200, len(data).to_bytes(8, "little") + data)


@cell(2, ENDED)
def closes_the_channel():
    """Nobody is there any more."""
    import os

    os.close(200)
