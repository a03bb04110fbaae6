"""Acknowledgements behave as futures do, on one shared condition."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, as_completed, wait

import pytest

from ckpt.keeper.acks import Ack, AckCondition, settle_all


def make(count: int) -> tuple[AckCondition, list[Ack]]:
    condition = AckCondition()
    return condition, [Ack(condition, b"%d" % n, None, 0.0) for n in range(count)]


def test_states() -> None:
    condition, (good, bad, pending) = make(3)
    error = ValueError("no")
    settle_all(condition, [(None, [good], None), (None, [bad], error)])
    assert good.done()
    assert not good.running()
    assert not good.cancelled()
    assert good.result(0) is None
    assert bad.exception(0) is error
    with pytest.raises(ValueError, match="no"):
        bad.result(0)
    assert not pending.done()


def test_callbacks_run_once_before_and_after() -> None:
    condition, (ack,) = make(1)
    calls: list[str] = []
    ack.add_done_callback(lambda a: calls.append("before"))
    for called in settle_all(condition, [(None, [ack], None)]):
        for callback in called.callbacks():
            callback(called)
    ack.add_done_callback(lambda a: calls.append("after"))
    assert calls == ["before", "after"]


@pytest.mark.parametrize("how", [FIRST_COMPLETED, FIRST_EXCEPTION])
def test_wait_returns_early(how: str) -> None:
    condition, acks = make(3)
    entered = threading.Event()

    def resolve() -> None:
        entered.wait(5)
        settle_all(condition, [(None, [acks[1]], ValueError("no"))])

    thread = threading.Thread(target=resolve)
    thread.start()
    entered.set()
    done, not_done = wait(acks, 5, how)
    thread.join()
    assert done == {acks[1]}
    assert not_done == {acks[0], acks[2]}


def test_as_completed_in_order_of_completion() -> None:
    condition, acks = make(3)
    order = iter([2, 0, 1])

    def resolve() -> None:
        for n in order:
            settle_all(condition, [(None, [acks[n]], None)])

    thread = threading.Thread(target=resolve)
    thread.start()
    assert set(as_completed(acks, 5)) == set(acks)
    thread.join()
