import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from graphgps_spse.errors import StoppedError
from graphgps_spse.training.signals import NAMES, StopSignals, stop_at_once


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_is_a_flag(name):
    with StopSignals() as stop:
        assert stop.received == ""
        os.kill(os.getpid(), getattr(signal, name))
        assert stop.received == name


def test_handlers_are_put_back():
    before = [signal.getsignal(getattr(signal, name)) for name in NAMES]
    with pytest.raises(ValueError, match="boom"), StopSignals():
        assert all(signal.getsignal(getattr(signal, n)) not in before for n in NAMES)
        raise ValueError("boom")
    assert [signal.getsignal(getattr(signal, name)) for name in NAMES] == before


def test_a_second_interrupt_stops_at_once():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == "SIGINT"


def test_a_second_termination_is_no_more_than_the_first():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == "SIGTERM"


def test_a_thread_cannot_hear_and_need_not():
    heard = []

    def run():
        with StopSignals() as stop:
            heard.append(stop.received)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [""]


def test_a_new_block_forgets_the_last_signal():
    stop = StopSignals()
    with stop:
        os.kill(os.getpid(), signal.SIGTERM)
    with stop:
        assert stop.received == ""


@pytest.mark.parametrize("name", NAMES)
def test_work_with_nothing_to_save_stops_where_it_is(name):
    before = [signal.getsignal(getattr(signal, n)) for n in NAMES]
    with pytest.raises(StoppedError, match=f"{name}; the same command continues") as stopped, stop_at_once():
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(10)
        pytest.fail("the signal was not heard")
    assert stopped.value.exit_code == 75
    assert [signal.getsignal(getattr(signal, n)) for n in NAMES] == before


def test_a_signal_inside_code_that_catches_exceptions_is_not_lost():
    """Logging handlers, among others, catch every Exception and go on."""
    with pytest.raises(StoppedError, match="SIGTERM"), stop_at_once():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except Exception:
            pytest.fail("a library would have swallowed the signal")


def test_an_interrupt_of_another_origin_passes():
    with pytest.raises(KeyboardInterrupt), stop_at_once():
        raise KeyboardInterrupt


def test_what_a_library_makes_of_a_signal_is_still_a_stop():
    """The import of a compiled module may turn the exception into another one."""
    with pytest.raises(StoppedError, match="SIGUSR1"), stop_at_once():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        except KeyboardInterrupt:
            raise ImportError("numpy cannot be imported") from None


def test_a_signal_that_a_library_lost_is_heard_by_the_next_block():
    with pytest.raises(StoppedError, match="SIGUSR2"), stop_at_once():
        try:
            os.kill(os.getpid(), signal.SIGUSR2)
        except KeyboardInterrupt:
            pass
        with StopSignals() as stop:
            assert stop.received == "SIGUSR2"
        raise StoppedError("stopped by SIGUSR2 in epoch 0")


def test_work_that_is_done_in_spite_of_a_lost_signal_is_done():
    with stop_at_once(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_later_signals_do_not_disturb_what_is_put_away():
    put_away = []
    with pytest.raises(StoppedError, match="SIGTERM"), stop_at_once():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            put_away.append(True)
    assert put_away == [True]


@pytest.mark.parametrize("name", NAMES)
def test_exit_at_once_says_so_writes_what_is_buffered_and_raises_nothing(name):
    code = (
        "import os, signal\nfrom graphgps_spse.training.signals import *\nlisten(exit_at_once)\n"
        f"print('printed before')\ntry:\n    os.kill(os.getpid(), signal.{name})\nfinally:\n    print('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (75, "printed before\n")
    assert done.stderr == f"stopped by {name}; the same command continues\n"
