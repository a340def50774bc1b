"""Waking: at once, in any number, and nobody else's file once it is over."""

import os
import select

from chameleon_runners.engine.process_pool import WakePipe


def ready(pipe):
    return bool(select.select([pipe], [], [], 0.0)[0])


def test_waking_and_clearing():
    pipe = WakePipe()
    assert not ready(pipe)
    pipe.clear()
    for _ in range(3):
        pipe.wake()
    assert ready(pipe)
    pipe.clear()
    assert not ready(pipe)
    pipe.close()


def test_nobody_waits_for_a_full_pipe():
    pipe = WakePipe()
    for _ in range(1 << 17):
        pipe.wake()
    assert ready(pipe)
    pipe.close()


def test_a_closed_one_touches_no_file_that_got_its_number():
    pipe = WakePipe()
    pipe.close()
    pipe.close()
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, b"theirs")
    pipe.wake()
    pipe.clear()
    assert os.read(read, 100) == b"theirs"
    os.close(read)
    os.close(write)
