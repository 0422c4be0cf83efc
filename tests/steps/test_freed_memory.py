"""What is freed goes back to the system, so that the next peak does not come on top of it."""

import subprocess
import sys

import pytest

# Small pieces, one in a hundred of which stays: no large block becomes free by itself.
PROGRAM = """
import ctypes, sys
from steps.text.freed_memory import return_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
pieces = [c.malloc(100_000) for _ in range(3_000)]
for piece in pieces:
    ctypes.memset(piece, 1, 100_000)
for index, piece in enumerate(pieces):
    if index % 100:
        c.free(piece)
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone has the call")
def test_pieces_between_others_are_given_back():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    # Of 297 MB that are free; what the library gives back by itself, at the end, is less.
    assert int(done.stdout) > 100e6
