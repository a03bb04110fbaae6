package ckpt.bench

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** Keeps nothing and finds nothing: what a query costs on it is what Spark's own operators cost. */
class NothingProvider extends StateStoreProvider {
  private var id: StateStoreId = _

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = id = stateStoreId

  override def stateStoreId: StateStoreId = id

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = new NothingStore(id, version)

  override def getReadStore(version: Long, uniqueId: Option[String]): ReadStateStore = new NothingStore(id, version)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = new NothingStore(id, version)

  override def close(): Unit = ()
}

final class NothingStore(override val id: StateStoreId, override val version: Long) extends StateStore {
  private var committed = false

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = null
  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = false
  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] =
    keys.iterator.map(_ => null)
  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] = Iterator.empty

  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = none
  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = none
  override def prefixScan(prefix: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = none
  override def prefixScanWithMultiValues(
      prefix: UnsafeRow,
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = none
  private def none: StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(Iterator.empty)

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = ()
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = ()
  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = ()
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = ()
  override def remove(key: UnsafeRow, colFamilyName: String): Unit = ()

  override def allColumnFamilyNames: Set[String] = Set(StateStore.DEFAULT_COL_FAMILY_NAME)
  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = ()
  override def removeColFamilyIfExists(colFamilyName: String): Boolean = false

  override def commit(): Long = {
    committed = true
    version + 1
  }
  override def abort(): Unit = ()
  override def release(): Unit = ()
  override def hasCommitted: Boolean = committed
  override def metrics: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty)
  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    throw new UnsupportedOperationException("this store has no commits that could be named")
}
