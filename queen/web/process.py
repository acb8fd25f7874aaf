"""What the kernel says of this process (Linux)."""

import os
import resource
import sys
from typing import Final, NamedTuple

_PAGE: Final = resource.getpagesize()


class Memory(NamedTuple):
    """Bytes. `anonymous` and `mapped` are the two parts of `resident`: what the program has made, and pages of files,
    of which the store's are most. `reserved` is what the program has asked the kernel for."""

    resident: int
    reserved: int
    anonymous: int
    mapped: int


class Cpu(NamedTuple):
    """Seconds since the process began."""

    user: float
    system: float


def memory() -> Memory:
    """How much memory the process takes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared, _, _, data, _ = map(int, file.read().split())
    return Memory(resident * _PAGE, data * _PAGE, (resident - shared) * _PAGE, shared * _PAGE)


def cpu() -> Cpu:
    """How much it has computed, all threads together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Cpu(usage.ru_utime, usage.ru_stime)


def open_files() -> int:
    """How many file descriptors are in use, sockets included."""
    return len(os.listdir("/proc/self/fd"))


_SPARE_FILES: Final = 64
"""File descriptors that connections leave to the process itself: the store, a compaction's file, looks into /proc."""


def raise_file_limit() -> None:
    """Take as many file descriptors as the system lets this process have; the usual 1,024 are few connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """How many connections the file descriptors suffice for."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(most - _SPARE_FILES, most // 2)
