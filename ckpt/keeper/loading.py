"""Reading checkpoints: missing, unavailable and corrupt are three different answers and never confused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ckpt.contract.backend import Backend
from ckpt.errors import BackendUnavailableError
from ckpt.keeper.bounded_calls import Fetcher
from ckpt.keeper.breaker import Breaker

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


class CheckpointLoader:
    """Asks the backend, in bounded time, and not at all while its circuit breaker is open."""

    def __init__(self, backend: Backend, fetcher: Fetcher, breaker: Breaker) -> None:
        self._backend = backend
        self._fetcher = fetcher
        self._asks_directly = fetcher.has_no_timeout or backend.capabilities.reads_in_process
        self.breaker = breaker

    def fetch(self, namespace: str, keys: Sequence[bytes], *, counts: bool = True) -> dict[bytes, bytes]:
        """The values of those keys that exist; BackendUnavailableError if the backend does not say.

        `counts` says whether a failure counts for the circuit breaker; see `Breaker.failed`.
        """
        breaker = self.breaker
        if not (breaker.untroubled or breaker.allows()):
            raise BackendUnavailableError(
                f"namespace {namespace!r} of {self._backend.address}: loads are off for another "
                f"{breaker.remaining_s():.1f} s because the backend kept failing; try again later"
            )
        try:
            if self._asks_directly:
                found = self._backend.get_many(namespace, keys)
            else:
                found = self._fetcher.call(partial(self._backend.get_many, namespace, keys))
        except BaseException as error:
            if isinstance(error, BackendUnavailableError | OSError):
                breaker.failed(counts=counts)
                raise BackendUnavailableError(
                    f"namespace {namespace!r} of {self._backend.address} is unavailable: {error}"
                ) from error
            if isinstance(error, Exception):
                breaker.succeeded()  # it answered, if not with what was hoped for
            else:
                breaker.failed(counts=counts)
            raise
        if not breaker.untroubled:
            breaker.succeeded()
        return found

    def fetch_patiently(
        self, namespace: str, keys: Sequence[bytes], wait_s: float, pause: Callable[[float], bool]
    ) -> dict[bytes, bytes]:
        """As `fetch`, tried again for up to `wait_s`; `pause` sleeps, and says whether to give up.

        For the circuit breaker this is one load: it has failed when `wait_s` is over, not at each attempt.
        Else a load that waits would switch off all loads, its own attempts among them.
        """
        deadline_s = time.monotonic() + wait_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self.fetch(namespace, keys, counts=False)
            except BackendUnavailableError:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    self.breaker.failed()
                    raise
                if pause(min(pause_s, left_s)):
                    raise
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
