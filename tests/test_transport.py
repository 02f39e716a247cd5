"""Frames and messages: whole or not at all, in time, no longer than asked for, and descriptors only where wanted."""

import os
import socket
import threading
import time

import pytest

from instructor.jail.transport import HEAD_BYTES, ConnectionLost, Frames, TimedOut


@pytest.fixture
def pair():
    """Two ends of a connection, the second one raw."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon():
    return time.monotonic() + 0.05


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 20_000], ids=len)
def test_a_frame_arrives_as_it_was_sent(data, pair):
    ours, theirs = pair
    sender = threading.Thread(target=Frames(theirs).send, args=(data,))
    sender.start()
    assert Frames(ours).receive() == data
    sender.join()


@pytest.mark.parametrize(
    "sent", [b"", b"\x05", (5).to_bytes(HEAD_BYTES, "little") + b"half"], ids=["none", "head", "half"]
)
def test_what_does_not_come_in_time_or_whole_is_said(sent, pair):
    ours, theirs = pair
    theirs.sendall(sent)
    with pytest.raises(TimedOut):
        Frames(ours).receive(soon())
    theirs.close()
    with pytest.raises(ConnectionLost, match="^the other end of the connection is closed$"):
        Frames(ours).receive(soon())


def test_bytes_that_drip_do_not_move_the_deadline(pair):
    ours, theirs = pair
    stop = threading.Event()

    def drip():
        theirs.sendall((1000).to_bytes(HEAD_BYTES, "little"))
        while not stop.wait(0.01):
            theirs.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimedOut):
        Frames(ours).receive(began + 0.1)
    assert time.monotonic() - began < 5
    stop.set()
    thread.join()


def test_whoever_does_not_read_stops_a_sender_after_its_patience(pair):
    with pytest.raises(ConnectionLost):
        Frames(pair[0], patience=0.05).send(bytes(50_000_000))


def test_descriptors_go_along_only_to_whoever_takes_them(pair):
    ours, theirs = pair
    read, write = os.pipe()
    sender = Frames(theirs)
    sender.send(b"here", [write])
    sender.send(b"no more")
    sender.send(b"again", [write])
    os.close(write)
    taking = Frames(ours, takes_descriptors=True)
    assert taking.receive() == b"here" and len(taking.descriptors) == 1
    os.write(taking.descriptors[0], b"it works")
    os.close(taking.descriptors[0])
    assert os.read(read, 100) == b"it works"
    assert taking.receive() == b"no more" and taking.descriptors == []
    assert Frames(ours).receive() == b"again", "Linux has closed that one"
    assert os.read(read, 100) == b"", "nobody holds the other end"
    os.close(read)
