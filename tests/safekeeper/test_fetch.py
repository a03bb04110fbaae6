"""Calls with a timeout: right answers, right errors, bounded threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ckpt.errors import BackendUnavailableError
from ckpt.keeper.bounded_calls import Fetcher


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    made = Fetcher(threads=2, waiting=1, timeout_s=0.02, name="ckpt-test-fetch")
    yield made
    made.close()


def test_answers_and_errors_pass_through(fetcher: Fetcher) -> None:
    assert fetcher.call(lambda: 7) == 7
    with pytest.raises(KeyError):
        fetcher.call(lambda: {}["missing"])


def test_a_timeout_of_the_call_itself_is_its_own(fetcher: Fetcher) -> None:
    def work() -> None:
        raise TimeoutError("of the socket")

    with pytest.raises(TimeoutError, match="of the socket"):
        fetcher.call(work, timeout_s=10)


def test_a_call_that_does_not_return_is_left_behind(fetcher: Fetcher) -> None:
    gate = threading.Event()
    ran: list[int] = []
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="did not answer"):
            fetcher.call(lambda: gate.wait(30))
    with pytest.raises(BackendUnavailableError, match="did not answer"):
        fetcher.call(lambda: ran.append(1))  # no thread is free, so it is given up and never run
    with pytest.raises(BackendUnavailableError, match="already wait"):
        fetcher.call(lambda: 1)
    gate.set()
    assert _eventually(fetcher) == 7
    assert ran == []


def _eventually(fetcher: Fetcher) -> int:
    while True:
        try:
            return fetcher.call(lambda: 7, timeout_s=10)
        except BackendUnavailableError:
            threading.Event().wait(0.001)


def test_threads_are_reused_and_bounded(fetcher: Fetcher) -> None:
    seen = {fetcher.call(threading.get_ident, timeout_s=10) for _ in range(50)}
    assert len(seen) <= 2
    assert threading.get_ident() not in seen


def test_after_close_calls_are_refused(fetcher: Fetcher) -> None:
    fetcher.call(lambda: 1)
    fetcher.close()
    fetcher.close()
    with pytest.raises(BackendUnavailableError, match="closed"):
        fetcher.call(lambda: 1)
