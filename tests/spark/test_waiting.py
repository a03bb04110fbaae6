"""Nobody waits for ever: what does not answer is a failed task that says so; a task that is stopped stops."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

import ckpt
from ckpt.dev.processes import descendants, freeze
from ckpt.sidecar import Door, Sidecar, SidecarOptions, TcpListener
from ckpt.testing.backends import WrappedBackend

CKPT = "spark.sql.streaming.stateStore.ckpt"
PATIENCE_S = 20
WATCHDOG_LOOKS_S = 0.6
"""In so long the watchdog looks at least once at everything that it watches."""
ResultT = TypeVar("ResultT")


class Blocked(WrappedBackend):
    """Takes no commit while it is blocked, and says when somebody waits for one."""

    def __init__(self) -> None:
        super().__init__(ckpt.open_backend("memory://"))
        self.waits = threading.Event()
        self.free = threading.Event()

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        del arguments
        if method == "commit":
            self.waits.set()
            self.free.wait()
        return call()


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    backend = Blocked()
    yield backend
    backend.free.set()


@pytest.fixture
def settings(blocked: Blocked, token: str) -> Iterator[dict[str, str]]:
    """The settings that lead to a sidecar whose backend is blocked."""
    listener, door = TcpListener("127.0.0.1", 0), Door(token=token.encode())
    with Sidecar(blocked, listener, SidecarOptions(shutdown_s=5), door=door) as sidecar:
        yield {"sidecar": sidecar.name, "sidecar.token": "env:CKPT_TEST_TOKEN"}
        blocked.free.set()


def test_a_sidecar_that_hangs_is_replaced(provider_of: Any, sidecars: Any, tmp_path: Path) -> None:
    own = {"address": f"log://{tmp_path}/log", "timeout": "4s"}
    others = set(sidecars())
    provider = provider_of(settings=own)
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    (sidecar,) = set(sidecars()) - others
    store = provider.open(1, first)
    store.put("b", 1, 2)
    freeze([process for process in descendants(os.getpid()) if process.pid == sidecar])
    with pytest.raises(Py4JJavaError) as caught:
        store.commit()
    said = str(caught.value)
    assert "no answer within 4.0 s" in said
    assert f"hangs; process {sidecar} was ended" in said
    store.abort()
    store = provider.open(1, first)
    store.put("b", 1, 3)
    second = store.commit()
    assert sorted(provider_of(settings=own).open(2, second).all()) == [("a", 1, 1), ("b", 1, 3)]
    for mine in set(sidecars()) - others:
        os.kill(mine, signal.SIGKILL)


def test_a_backend_that_does_not_answer_is_named(
    provider_of: Any, settings: dict[str, str], blocked: Blocked
) -> None:
    provider = provider_of(settings=settings | {"timeout": "2s"})
    store = provider.open(0)
    store.put("a", 1, 1)
    with pytest.raises(Py4JJavaError) as caught:
        store.commit()
    assert "runs, but its backend memory:// does not answer it" in str(caught.value)
    store.abort()
    blocked.free.set()
    store = provider.open(0)
    store.put("a", 1, 2)
    assert provider.open(1, store.commit()).all() == [("a", 1, 2)]


def test_a_query_is_stopped_while_a_commit_waits(
    spark: SparkSession, stream_of: Any, settings: dict[str, str], blocked: Blocked
) -> None:
    """The limit is an hour here: stopping does not wait for it, nor for the backend."""
    stream = stream_of("in", "word string")
    stream.feed([{"word": "be"}])
    settings = settings | {"timeout": "1h"}
    for name, value in settings.items():
        spark.conf.set(f"{CKPT}.{name}", value)
    try:
        counts = stream.stream().groupBy("word").count().writeStream.outputMode("update").format("noop")
        query = counts.option("checkpointLocation", stream.checkpoint).start()
        assert blocked.waits.wait(60)
        query.stop()
        assert not query.isActive
        assert not blocked.free.is_set()
    finally:
        for name in settings:
            spark.conf.unset(f"{CKPT}.{name}")


class WaitsTooLong:
    """Has waited for longer than it may, whenever the watchdog looks; `cut` is what happens then."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.cut_off = threading.Event()
        self._cut = cut

    def waitingSinceNanos(self) -> int:  # noqa: N802 - as the JVM calls it
        return 1

    def limitNanos(self) -> int:  # noqa: N802
        return 0

    def cut(self) -> None:
        self.cut_off.set()
        self._cut()

    def hashCode(self) -> int:  # noqa: N802
        return id(self) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        # The other one comes as what Java has in its place, so `is` would never be true.
        return bool(other.hashCode() == self.hashCode())

    class Java:
        implements: ClassVar = ["ckpt.spark.wire.Watched"]


def test_a_connection_that_cannot_be_closed_does_not_end_the_watch_over_the_others(
    spark: SparkSession, provider_of: Any, settings: dict[str, str]
) -> None:
    def fail() -> None:
        raise OSError("the connection cannot be closed")

    ensure_callback_server_started(spark.sparkContext._gateway)
    watchdog = spark._jvm.ckpt.spark.wire.Watchdog
    stuck, other = WaitsTooLong(fail), WaitsTooLong(lambda: None)
    watchdog.watch(stuck)
    assert stuck.cut_off.wait(PATIENCE_S)
    stuck.cut_off.clear()
    assert stuck.cut_off.wait(PATIENCE_S), "the watchdog has ended"
    watchdog.watch(other)
    assert other.cut_off.wait(PATIENCE_S)
    provider_of(settings=settings).open(0).abort()
    watchdog.forget(stuck)
    watchdog.forget(other)
    stuck.cut_off.wait(WATCHDOG_LOOKS_S)  # it may just be cut
    stuck.cut_off.clear()
    assert not stuck.cut_off.wait(WATCHDOG_LOOKS_S), "it is still watched"
