"""Calls on threads of their own: one that never ends fails its test by name, and hangs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from ckpt.errors import BackendUnavailableError

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

PATIENT_S = 240.0
"""Far longer than a call may take, or a server to come back; a longer wait would never end."""


def begin(call: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> Future[ResultT]:
    """Make the call on a thread of its own, at once; a process that ends does not wait for it.

    Examples
    --------
    >>> begin(divmod, 7, 2).result(timeout=PATIENT_S)
    (3, 1)
    """
    made: Future[ResultT] = Future()

    def run() -> None:
        try:
            made.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the future carries it to the thread that waits
            made.set_exception(error)

    threading.Thread(target=run, name="caller", daemon=True).start()
    return made


def outcome(made: Future[Any]) -> Any:
    """What a call returned or raised; a failure if it does not end.

    Examples
    --------
    >>> outcome(begin(divmod, 7, 0))
    ZeroDivisionError('integer division or modulo by zero')
    """
    try:
        error = made.exception(timeout=PATIENT_S)
    except TimeoutError:
        raise AssertionError(f"a call has not ended after {PATIENT_S:g} s") from None
    return made.result() if error is None else error


def until_it_works(call: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> ResultT:
    """The answer of a store that has to find its way back, asked until it is available again."""
    deadline_s = time.monotonic() + PATIENT_S
    while True:
        try:
            return begin(call, *args, **kwargs).result(timeout=PATIENT_S)
        except BackendUnavailableError:
            if time.monotonic() > deadline_s:
                raise
