"""The provider's client sends and understands the golden bytes of the protocol, as `ckpt.sidecar` does.

The conversation is that of `tests/sidecar/golden/protocol.hex`; the sidecar of it is played here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tests.golden import golden_bytes

pytestmark = pytest.mark.spark_core

GOLDEN = golden_bytes(Path(__file__).parents[1] / "sidecar" / "golden" / "protocol.hex")
CONVERSATION = [
    ("hello", "welcome"),
    ("commit", "committed"),
    ("get", "got"),
    ("load", "loaded"),
    ("history", "histories"),
    ("truncate", "truncated"),
    ("again", "refused"),
    ("stage", "staged"),
    ("rest", "completed"),
]


class Told:
    """What the client hands over: a function of a row block, and what the block hands its rows to."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []

    def apply(self, block: Any) -> None:
        block.foreach(self)

    def take(self, data: bytes, key: int, key_bytes: int, value: int, value_bytes: int) -> None:
        whole = bytes(data)
        self.rows.append((whole[key : key + key_bytes], whole[value : value + value_bytes]))

    class Java:
        implements: ClassVar = ["scala.Function1", "ckpt.spark.wire.RowReader"]


@pytest.fixture
def heard() -> list[bytes]:
    """What the client has said, in the lengths that were expected."""
    return []


@pytest.fixture
def client_of(spark: SparkSession, heard: list[bytes]) -> Iterator[Callable[[list[tuple[str, str]]], Any]]:
    """A client of a sidecar that answers as the conversation has it, whatever it is asked."""
    ensure_callback_server_started(spark.sparkContext._gateway)
    jvm: Any = spark._jvm
    threads = []

    def talk(server: socket.socket, conversation: list[tuple[str, str]]) -> None:
        with closing(server), closing(server.accept()[0]) as connection:
            connection.settimeout(20)
            for asked, told in conversation:
                heard.append(connection.recv(len(GOLDEN[asked]), socket.MSG_WAITALL))
                connection.sendall(GOLDEN[told])

    def start(conversation: list[tuple[str, str]]) -> Any:
        server = socket.create_server(("127.0.0.1", 0))
        threads.append(threading.Thread(target=talk, args=(server, conversation)))
        threads[-1].start()
        port = server.getsockname()[1]
        endpoint = jvm.ckpt.spark.wire.TcpEndpoint("127.0.0.1", port, "tk", jvm.scala.Option.empty())
        return jvm.ckpt.spark.wire.Client(endpoint, 20_000)

    yield start
    for thread in threads:
        thread.join(30)


def rows_of(jvm: Any, puts: dict[bytes, bytes], deletes: list[bytes] | None = None) -> Any:
    """The rows of a commit that puts and deletes these keys of the default family."""
    state = jvm.ckpt.spark.state.StateMap()
    family = state.find("default").get()
    for key in deletes or []:
        family.load(key, 0, len(key), 0, 0)
    for key, value in puts.items():
        family.put(key, value)
    for key in deletes or []:
        family.remove(key)
    return jvm.ckpt.spark.state.ChangedRows(state.changes())


def test_the_client_speaks_and_understands_the_golden_bytes(
    spark: SparkSession, client_of: Callable[[list[tuple[str, str]]], Any], heard: list[bytes]
) -> None:
    jvm: Any = spark._jvm
    some, client = jvm.scala.Option.apply, client_of(CONVERSATION)
    rows = rows_of(jvm, {b"k1": b"v", b"k": b""}, [b"old"])
    assert client.commit("ns", 7, some("b"), "c", rows) == 3
    keys = jvm.java.util.ArrayList()
    for key in (b"\0\0k1", b"\0\0no"):
        keys.add(key)
    wanted = jvm.scala.jdk.javaapi.CollectionConverters.asScala(keys).toList()
    told = Told()
    client.get("ns", 7, some("c"), wanted, told)
    assert told.rows == [(b"\0\0k1", b"v")]
    told = Told()
    client.load("ns", 7, jvm.scala.Option.empty(), told)
    assert told.rows == [(b"\0\0k1", b"v"), (b"\0\0k", b"")]
    history = client.history("ns")
    commits = [history.commits().apply(at) for at in range(history.commits().size())]
    assert [(c.id(), c.version(), c.base()) for c in commits] == [("b", 6, ""), ("c", 7, "b")]
    assert (history.tip(), history.newest().get().id()) == ("c", "c")
    client.truncate("ns", 6)
    with pytest.raises(Py4JJavaError) as caught:
        client.truncate("ns", 6)
    assert caught.value.java_exception.getMessage() == "gone"
    assert caught.value.java_exception.isMissingVersion()
    too_long = rows_of(jvm, {b"k1": b"v" * 30, b"k2": b"v" * 30})  # for one frame
    assert client.commit("ns", 8, some("c"), "d", too_long) == 1
    client.close()
    assert heard == [GOLDEN[asked] for asked, _ in CONVERSATION]
