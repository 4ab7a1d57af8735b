import os
import signal
import threading

import pytest

from gpn_ref.training.interrupts import Interrupts


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_a_wish_and_the_second_an_end(number, status, capfd):
    before = signal.getsignal(number)
    with Interrupts() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert stop.exit_status == status
        with pytest.raises(KeyboardInterrupt) as caught:
            os.kill(os.getpid(), number)
        assert caught.value.args == (number,)
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err == "\nfinishing this step and saving; once more to stop at once\n"


def test_outside_the_main_thread_it_leaves_signals_alone():
    seen = []

    def work():
        with Interrupts() as stop:
            seen.append((stop(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, signal.default_int_handler)]
