"""A Spark session on ckpt, shared by all tests of this folder, and streams that are fed file by file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ckpt.spark
from ckpt.dev.s3 import ACCESS_KEY, SECRET_KEY
from tests.spark.small import ENVIRONMENT, SETTINGS
from tests.spark.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = 3
STATE_STORE = "spark.sql.streaming.stateStore"
TOKEN = "a token of the tests"
S3_CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
"""In the environment of the session's JVM and of its sidecars, because no setting of Spark holds a secret."""


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of all queries; each has its own checkpoint, and so its own namespaces."""
    return f"log://{tmp_path_factory.mktemp('state')}/log"


@pytest.fixture(scope="session")
def spark(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, as small as Spark gets."""
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed: pip install 'ckpt[spark]'")
    builder = (
        sql.SparkSession.builder.master("local[2]")
        .appName("ckpt")
        .config(map=dict(SETTINGS))
        .config("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("CKPT_TEST_TOKEN", TOKEN)
        patch.setenv("CKPT_TEST_OTHER_TOKEN", "another one")
        with pytest.MonkeyPatch.context() as of_the_jvm:
            for name, value in S3_CREDENTIALS.items():
                of_the_jvm.setenv(name, value)
            session = ckpt.spark.configure(builder, address).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def stream_of(spark: SparkSession, tmp_path: Path) -> Any:
    """Makes streams by name and schema."""

    def make(name: str, schema: str) -> Stream:
        return Stream(spark, tmp_path / name, schema)

    return make


class Store:
    """One open store of a provider: keys are a word and a number, values a number."""

    def __init__(self, jvm: Any, store: Any, rows: Rows) -> None:
        self._jvm, self.java, self._rows = jvm, store, rows

    def put(self, word: str, number: int, value: int, family: str = "default") -> None:
        self.java.put(self._rows.key(word, number), self._rows.value(value), family)

    def merge(self, word: str, number: int, *values: int, family: str) -> None:
        rows = self._rows.array([self._rows.value(value) for value in values])
        self.java.mergeList(self._rows.key(word, number), rows, family)

    def put_list(self, word: str, number: int, *values: int, family: str) -> None:
        rows = self._rows.array([self._rows.value(value) for value in values])
        self.java.putList(self._rows.key(word, number), rows, family)

    def get(self, word: str, number: int, family: str = "default") -> int | None:
        row = self.java.get(self._rows.key(word, number), family)
        return None if row is None else row.getInt(0)

    def values(self, word: str, number: int, family: str) -> list[int]:
        found = self.java.valuesIterator(self._rows.key(word, number), family)
        listed = []
        while found.hasNext():
            listed.append(found.next().getInt(0))
        return listed

    def remove(self, word: str, number: int, family: str = "default") -> None:
        self.java.remove(self._rows.key(word, number), family)

    def create(self, family: str, spec: Any, *, several: bool = False, internal: bool = False) -> None:
        rows = self._rows
        self.java.createColFamilyIfAbsent(family, rows.key_schema, rows.value_schema, spec, several, internal)

    def all(self, family: str = "default") -> list[tuple[str, int, int]]:
        """Every key and value, in the order of the store's iterator."""
        return self.read(self.java.iterator(family))

    def starting_with(self, word: str, family: str = "default") -> list[tuple[str, int, int]]:
        return self.read(self.java.prefixScan(self._rows.prefix(word), family))

    def read(self, pairs: Any) -> list[tuple[str, int, int]]:
        listed = []
        while pairs.hasNext():
            pair = pairs.next()
            key = pair.key()
            listed.append((key.getUTF8String(0).toString(), key.getInt(1), pair.value().getInt(0)))
        return listed

    def commit(self) -> str:
        """Commit, and the commit id that Spark would note down for the next batch."""
        self.java.commit()
        return str(self.java.getStateStoreCheckpointInfo().stateStoreCkptId().get())

    def abort(self) -> None:
        self.java.abort()

    def metric(self, name: str) -> int:
        """What the store reports under one of the provider's own names, once it has committed."""
        reported = self.java.metrics().customMetrics().iterator()
        while reported.hasNext():
            pair = reported.next()
            if pair._1().name() == name:
                return int(pair._2())
        raise KeyError(name)


class Rows:
    """Rows in Spark's own format: what operators give to a store."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = spark.sparkContext._gateway
        self.jvm = spark._jvm
        types = self.jvm.org.apache.spark.sql.types
        self.key_schema = types.StructType.fromDDL("word string, number int")
        self.value_schema = types.StructType.fromDDL("value int")

    def key(self, word: str, number: int) -> Any:
        return self._row(self._text(word), number)

    def prefix(self, word: str) -> Any:
        return self._row(self._text(word))

    def value(self, value: int) -> Any:
        return self._row(value)

    def array(self, rows: list[Any]) -> Any:
        made = self._gateway.new_array(
            self.jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow, len(rows)
        )
        for at, row in enumerate(rows):
            made[at] = row
        return made

    def _text(self, text: str) -> Any:
        return self.jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)

    def _row(self, *fields: Any) -> Any:
        writer = self.jvm.org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter(len(fields))
        writer.resetRowWriter()
        for at, field in enumerate(fields):
            writer.write(at, field)
        return writer.getRow().copy()


class Provider:
    """A provider as an executor has it for one partition; another of the same place is another executor."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        *,
        spec: str = "none",
        families: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are those of the provider that differ from the session's, by the end of their names."""
        self.rows = Rows(spark)
        self.jvm = jvm = self.rows.jvm
        self._state = jvm.org.apache.spark.sql.execution.streaming.state
        session = spark._jsparkSession.sessionState().conf().clone()
        for name, value in (settings or {}).items():
            session.setConfString(f"{STATE_STORE}.ckpt.{name}", value)
        conf = self._state.StateStoreConf(
            session,
            getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty(),
        )
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("sql.streaming.runId", str(uuid.uuid4()))
        self.java = jvm.ckpt.spark.CkptStateStoreProvider()
        self.namespace = f"spark/{str(root).strip('/')}/0/0/default"
        place = self._state.StateStoreId(str(root), 0, 0, "default")
        nothing = jvm.scala.Option.empty()
        self.java.init(
            place,
            self.rows.key_schema,
            self.rows.value_schema,
            self.spec(spec),
            families,
            conf,
            hadoop,
            False,
            nothing,
        )

    def spec(self, kind: str) -> Any:
        schema = self.rows.key_schema
        if kind == "prefix":
            return self._state.PrefixKeyScanStateEncoderSpec(schema, 1)
        return self._state.NoPrefixKeyStateEncoderSpec(schema)

    def range_spec(self) -> Any:
        """Keys in the order of their number."""
        ordinals = self.jvm.scala.jdk.javaapi.CollectionConverters.asScala([1]).toList()
        return self._state.RangeKeyScanStateEncoderSpec(self.rows.key_schema, ordinals)

    def open(self, version: int, commit_id: str | None = None, *, empty: bool = False) -> Store:
        option = self.jvm.scala.Option.apply(commit_id)
        return Store(self.jvm, self.java.getStore(version, option, False, empty), self.rows)

    def read(self, version: int, commit_id: str | None = None) -> Store:
        option = self.jvm.scala.Option.apply(commit_id)
        return Store(self.jvm, self.java.getReadStore(version, option), self.rows)


@pytest.fixture
def provider_of(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Makes providers of one and the same store, as several executors or one after a crash have them."""
    made: list[Provider] = []

    def make(root: Path | None = None, **options: Any) -> Provider:
        made.append(Provider(spark, root or tmp_path / "state", **options))
        return made[-1]

    yield make
    for provider in made:
        provider.java.close()


@pytest.fixture(scope="session")
def token() -> str:
    """What the JVM finds in its environment as CKPT_TEST_TOKEN."""
    return TOKEN


def sidecars_of(jvm: int) -> list[int]:
    """The processes that this JVM has started and that are sidecars."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == jvm and b"serve" in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


@pytest.fixture
def sidecars(spark: SparkSession) -> Callable[[], list[int]]:
    """Says which sidecars the session's JVM has started."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    return lambda: sidecars_of(jvm)
