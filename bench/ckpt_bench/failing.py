"""How a store fails in a process of its own: in words, for what a peer raises may not fit through a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ckpt.errors import CkptError


class StoreError(CkptError):
    """A store could not do its part; the message is what it said."""


@contextlib.contextmanager
def failing_in_words() -> Iterator[None]:
    """Raises StoreError for whatever is raised within.

    Examples
    --------
    >>> with failing_in_words():
    ...     raise LookupError("no such key")
    Traceback (most recent call last):
        ...
    ckpt_bench.failing.StoreError: LookupError: no such key
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a peer may raise anything; the others go on without it
        raise StoreError(f"{type(error).__name__}: {error}") from None
