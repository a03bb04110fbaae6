package ckpt.spark.state

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * One version of a store, open in one task until it commits, aborts or releases it; a task that ends without doing so
 * is taken care of. Rows that are handed out are views that the next call changes, as with Spark's RocksDB store.
 */
final class CkptStateStore private[spark] (
    owner: StateOwner,
    override val id: StateStoreId,
    from: CommitRef,
    state: StateMap,
    encodings: ConcurrentHashMap[String, Encoding],
    columnFamilies: Boolean,
    private var readOnly: Boolean,
    opened: Opened)
    extends SparkStore {
  import CkptStateStore._

  @volatile private var phase: Phase = Open
  private var committed: Option[CommitRef] = None
  private var reported = StateStoreMetrics(0, 0, Map.empty)
  // Nearly all calls in a row are about one family; null: look it up.
  private var lastName: String = _
  private var lastUsed: OpenFamily = _
  // As with Spark's default provider, only what was read back is looked at: a row that this query wrote is its own.
  private var validated = opened.fromMemory || opened.onNothing
  private var snapshotAsked = false

  Option(TaskContext.get()).foreach { task =>
    task.addTaskCompletionListener[Unit](_ => if (phase == Open) end(if (readOnly) Released else Aborted))
  }

  override def version: Long = from.version

  override def hasCommitted: Boolean = phase == Committed

  override def allColumnFamilyNames: Set[String] = state.names

  /** Whether the keys are where a routing table places them, and not Spark's hash. */
  private[spark] def isRouted: Boolean = state.layout != null

  // -- reading -----------------------------------------------------------------------------------

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    val used = using("get", colFamilyName)
    val value = used.encoding.decodeValue(used.values.first(encodeKey(used, key)))
    if (value != null) validateOnce(key, value)
    value
  }

  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] =
    keys.iterator.map(get(_, colFamilyName))

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    val used = using("keyExists", colFamilyName)
    used.values.first(encodeKey(used, key)) != null
  }

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] = {
    val used = usingValues("valuesIterator", colFamilyName)
    used.values.parts(encodeKey(used, key)).flatMap(used.encoding.decodeValues(_))
  }

  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = using("iterator", colFamilyName)
    pairs(used, used.values.all)
  }

  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = usingValues("iteratorWithMultiValues", colFamilyName)
    pairsOfValues(used, used.values.all)
  }

  override def prefixScan(prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = using("prefixScan", colFamilyName)
    pairs(used, withPrefix(used, prefixKey))
  }

  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow,
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = usingValues("prefixScanWithMultiValues", colFamilyName)
    pairsOfValues(used, withPrefix(used, prefixKey))
  }

  override def rangeScan(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = using("rangeScan", colFamilyName)
    pairs(used, inRange(used, startKey, endKey))
  }

  override def rangeScanWithMultiValues(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val used = usingValues("rangeScanWithMultiValues", colFamilyName)
    pairsOfValues(used, inRange(used, startKey, endKey))
  }

  private def withPrefix(used: OpenFamily, prefix: UnsafeRow): Iterator[Entry] = {
    require(used.encoding.prefixScans, "a prefix scan needs a key encoder with a prefix")
    used.values.startingWith(used.encoding.encodePrefix(prefix))
  }

  private def inRange(used: OpenFamily, start: Option[UnsafeRow], end: Option[UnsafeRow]): Iterator[Entry] = {
    require(used.encoding.rangeScans, "a range scan needs a key encoder that keeps the order of keys")
    used.values.range(start.map(used.encoding.encodeKey).orNull, end.map(used.encoding.encodeKey).orNull)
  }

  private def pairs(used: OpenFamily, entries: Iterator[Entry]): StateStoreIterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair
    new StateStoreIterator(entries.map { entry =>
      pair.withRows(used.encoding.decodeKey(entry.key), used.encoding.decodeValue(entry.value))
      validateOnce(pair.key, pair.value)
      pair
    })
  }

  private def pairsOfValues(used: OpenFamily, entries: Iterator[Entry]): StateStoreIterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair
    new StateStoreIterator(entries.flatMap { entry =>
      val key = used.encoding.decodeKey(entry.key)
      used.values.parts(entry.key).flatMap(used.encoding.decodeValues(_)).map(pair.withRows(key, _))
    })
  }

  // -- writing -----------------------------------------------------------------------------------

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    val used = changing("put", colFamilyName)
    require(value != null, "Cannot put a null value")
    used.values.put(encodeKey(used, key), used.encoding.encodeValue(value))
  }

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val used = changingValues("putList", colFamilyName, values)
    val encoded = encodeKey(used, key)
    if (values.isEmpty) used.values.remove(encoded)
    else used.values.put(encoded, used.encoding.encodeValues(values))
  }

  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit =
    mergeList(key, Array(value), colFamilyName)

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val used = changingValues("merge", colFamilyName, values)
    used.values.append(encodeKey(used, key), used.encoding.encodeValues(values))
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    val used = changing("remove", colFamilyName)
    used.values.remove(encodeKey(used, key))
  }

  override def deleteRange(beginKey: UnsafeRow, endKey: UnsafeRow, colFamilyName: String): Unit = {
    val used = changing("deleteRange", colFamilyName)
    verify(used.encoding.rangeDeletes, "deleteRange needs a key encoder that keeps the order of keys")
    used.values.range(encodeKey(used, beginKey), encodeKey(used, endKey)).foreach(e => used.values.remove(e.key))
  }

  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = {
    requireOpen()
    requireFamilyName("create_col_family", colFamilyName, isInternal)
    val encoding = owner.register(
      colFamilyName, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, isInternal)
    val family = state.create(colFamilyName, encoding.description)
    if (encoding.ordered) family.keepOrdered()
    lastName = null
  }

  override def removeColFamilyIfExists(colFamilyName: String): Boolean = {
    requireOpen()
    requireFamilyName("remove_col_family", colFamilyName, internal = false)
    lastName = null
    encodings.remove(colFamilyName)
    state.drop(colFamilyName)
  }

  // -- ending ------------------------------------------------------------------------------------

  override def commit(): Long = commitAs(UUID.randomUUID().toString)

  /** Commits under an id that Spark has noted down for this state already, when it was with another provider. */
  private[spark] def commitAs(commitId: String): Long = {
    requireOpen()
    verify(!readOnly, "a store that was opened for reading cannot commit")
    val began = System.nanoTime()
    try {
      val done = owner.commit(from, opened.onNothing, commitId)
      committed = Some(done.to)
      phase = Committed
      reported = measure(done, System.nanoTime() - began)
      done.to.version
    } catch {
      case e: Throwable =>
        // Of an exception with a condition Spark shows only its own text, so the reason has to be in that.
        val told = Map("providerClass" -> s"$this: ${e.getMessage}")
        throw new SparkException("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", told, e)
    } finally if (phase == Committed) owner.endOfUse()
  }

  override def abort(): Unit = if (phase == Open) end(Aborted)

  override def release(): Unit = if (phase == Open) {
    verify(readOnly, "only a store that was opened for reading can be released")
    end(Released)
  }

  /** The same store, from now on for writing: a task reads the state first and changes it then. */
  private[spark] def allowWrites(): CkptStateStore = {
    requireOpen()
    readOnly = false
    this
  }

  /** Reports with the commit whether Spark asked for a snapshot; every commit can be opened without the ones before. */
  private[spark] def countSnapshot(asked: Boolean): CkptStateStore = {
    snapshotAsked = asked
    this
  }

  override def metrics: StateStoreMetrics = reported

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = committed match {
    case Some(to) => StateStoreCheckpointInfo(id.partitionId, to.version, to.commitId, from.commitId)
    case None => throw StateStoreErrors.stateStoreOperationOutOfOrder(s"$this has not committed anything")
  }

  override def toString: String =
    s"CkptStateStore[operatorId=${id.operatorId}, partitionId=${id.partitionId}, storeName=${id.storeName}, " +
      s"version=$version]"

  private def end(as: Phase): Unit = {
    phase = as
    try state.revert()
    finally owner.endOfUse()
  }

  private def measure(done: DurableCommit, commitNanos: Long): StateStoreMetrics =
    StateStoreMetrics(
      state.numKeys,
      state.memoryBytes,
      Map(
        Metrics.LoadTime -> opened.nanos / 1000000,
        Metrics.CommitTime -> commitNanos / 1000000,
        Metrics.CommitBytes -> done.rows.bytes,
        Metrics.Commits -> 1L,
        Metrics.DurableWrites -> done.durableWrites,
        Metrics.RoundTrips -> done.roundTrips,
        Metrics.FromMemory -> (if (opened.fromMemory) 1L else 0L),
        Metrics.SpilledKeys -> state.spilledKeys,
        Metrics.FetchedKeys -> owner.takeFetched(),
        Metrics.MovedRows -> owner.movedRows,
        Metrics.ForcedSnapshots -> (if (snapshotAsked) 1L else 0L)))

  // -- checks ------------------------------------------------------------------------------------

  private def using(operation: String, name: String): OpenFamily = {
    requireOpen()
    if (lastName == null || ((name ne lastName) && name != lastName)) {
      lastUsed = look(operation, name)
      lastName = name
    }
    lastUsed
  }

  private def look(operation: String, name: String): OpenFamily = {
    if (name != StateMap.Default) {
      if (!columnFamilies) throw StateStoreErrors.unsupportedOperationException(operation, NoColumnFamilies)
      if (name.isEmpty || name.trim != name) {
        throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
      }
    }
    val found = for (family <- state.find(name); encoding <- Option(encodings.get(name))) yield {
      OpenFamily(encoding, if (encoding.multipleValues) new Lists(family) else new SingleValues(family))
    }
    found.getOrElse(throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, name))
  }

  private def usingValues(operation: String, name: String): OpenFamily = {
    val used = using(operation, name)
    verify(used.encoding.multipleValues, s"$operation needs a column family with several values for a key")
    used
  }

  private def changing(operation: String, name: String): OpenFamily = {
    verify(!readOnly, s"$operation on a store that was opened for reading")
    using(operation, name)
  }

  private def changingValues(operation: String, name: String, values: Array[UnsafeRow]): OpenFamily = {
    val used = changing(operation, name)
    verify(used.encoding.multipleValues, s"$operation needs a column family with several values for a key")
    require(values != null && values.forall(_ != null), s"Cannot $operation a null value")
    used
  }

  private def validateOnce(key: UnsafeRow, value: UnsafeRow): Unit = if (!validated) {
    owner.validate(key, value)
    validated = true
  }

  private def encodeKey(used: OpenFamily, key: UnsafeRow): Array[Byte] = {
    verify(key != null, "Key cannot be null")
    used.encoding.encodeKey(key)
  }

  private def requireOpen(): Unit =
    if (phase != Open) throw StateStoreErrors.stateStoreOperationOutOfOrder(s"$this is already ${phase.word}")

  private def requireFamilyName(operation: String, name: String, internal: Boolean): Unit = {
    if (!columnFamilies) throw StateStoreErrors.unsupportedOperationException(operation, NoColumnFamilies)
    if (name.isEmpty || name.trim != name || (name == StateMap.Default && !internal)) {
      throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
    }
    if (!internal && name.startsWith("$")) throw StateStoreErrors.cannotCreateColumnFamilyWithReservedChars(name)
  }
}

object CkptStateStore {
  private val NoColumnFamilies = "multiple column families is disabled in CkptStateStoreProvider"

  /** A family and how its rows are encoded. */
  private final case class OpenFamily(encoding: Encoding, values: KeyedValues)

  private sealed abstract class Phase(val word: String)
  private case object Open extends Phase("open")
  private case object Committed extends Phase("committed")
  private case object Aborted extends Phase("aborted")
  private case object Released extends Phase("released")

  private def verify(condition: Boolean, message: => String): Unit =
    if (!condition) throw new IllegalStateException(message)
}
