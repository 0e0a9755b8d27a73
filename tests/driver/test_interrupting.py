"""Interrupts of the local engine reach the epoch that they are meant for, and leave nothing behind in the interpreter."""

import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from forkpoint.errors import EpochInterrupted
from forkpoint.local.interrupts import Interruptible

pytestmark = pytest.mark.untraced

TRACED = """
import faulthandler, sys
faulthandler.dump_traceback_later(60, exit=True)

import forkpoint as fp
from forkpoint.errors import EpochInterrupted
from forkpoint.local.interrupts import Interruptible
from forkpoint.testing import TestSource, run_local

NO_TIME = fp.WatermarkStrategy.no_watermarks()
run_local(lambda env, source: env.from_source(source, NO_TIME, "in").map(lambda n: n + 1, int), TestSource([1, 2, 3]))

def traced():
    return "went on"

sys.settrace(lambda *_: None)
found = traced()
sys.settrace(None)
print(found)
"""


def test_a_tracer_works_after_a_job():
    """As debuggers and coverage tools have one: Python 3.11 hangs under it while an asynchronous exception is looked for."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("went on\n", 0), done.stderr


def test_an_interrupt_ends_a_loop():
    epoch, began = Interruptible(), threading.Event()

    def interrupt():
        began.wait()
        epoch.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()

    def loop():
        with epoch.within():
            began.set()
            while True:
                pass

    with pytest.raises(EpochInterrupted):
        loop()
    thread.join()


def test_an_interrupt_at_the_end_reaches_nothing_behind_it():
    """Whenever it is sent: it arrives inside, or never."""
    arrived = 0
    for pause in range(300):
        epoch, began, go_on = Interruptible(), threading.Event(), threading.Event()

        def interrupt(epoch=epoch, began=began, go_on=go_on):
            began.wait()
            go_on.set()
            epoch.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with epoch.within():
                began.set()
                go_on.wait()
                for _ in range(pause * 10):
                    pass
        except EpochInterrupted:
            arrived += 1
        for _ in range(1000):  # nothing may arrive here
            pass
        thread.join()
        for _ in range(1000):
            pass
    assert arrived > 0


def test_a_lock_whose_context_was_interrupted_on_the_way_in_is_released():
    """As a store's, which the next run needs; the error may outlive the thread that has the lock."""
    epoch, lock, kept = Interruptible(), threading.RLock(), []

    @contextmanager
    def locked():
        with lock:
            yield

    def work():
        entered = locked()
        entered.__enter__()
        raise EpochInterrupted  # before a `with` that would call __exit__

    def run():
        try:
            with epoch.within():
                work()
        except EpochInterrupted as error:
            kept.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert kept
    assert lock.acquire(blocking=False)


STARTING = """
import os, threading, time
from forkpoint.errors import EpochInterrupted
from forkpoint.local.interrupts import Interruptible


def start_threads():
    global received
    while True:
        try:
            with interruptible.within():
                while True:
                    threading.Thread(target=int).start()
        except EpochInterrupted:
            received += 1


interruptible, received = Interruptible(), 0
threading.Thread(target=start_threads).start()
while received < 300:
    interruptible.interrupt()
    time.sleep(0.0005)
os._exit(0)
"""


def test_an_interrupt_while_a_thread_is_started_reaches_the_right_one() -> None:
    """CPython 3.11 gives a new thread its creator's id for a moment: the error ended it, and its creator waited for it."""
    assert subprocess.run([sys.executable, "-c", STARTING], stderr=subprocess.DEVNULL).returncode == 0
