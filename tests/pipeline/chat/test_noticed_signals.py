"""ctrl-C at the very moment at which readline begins to wait, which Python alone overlooks in half of the cases."""

from __future__ import annotations

import os
import time

import pytest
from terminal import Terminal, python

CODE = """
import readline
from pipeline.chat.noticed_signals import noticed_signals
with noticed_signals():
    input("you> ")
"""
TRIES = 10


@pytest.fixture
def one_core():
    """On one core the program is stopped where it has shown the prompt, before it waits: whoever reads that goes on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system ties no process to a core")
def test_no_signal_is_overlooked(one_core):
    for _ in range(TRIES):
        terminal = Terminal(python(CODE), 80, 24, typed=True)
        terminal.wait_for_prompt("you>")
        terminal.type("ab")
        terminal.wait_for_prompt("you> ab")
        terminal.type("\x03")
        deadline = time.monotonic() + 10
        while terminal.process.poll() is None and time.monotonic() < deadline:
            terminal.take(0.01)
        assert terminal.process.poll() is not None
        terminal.end()
