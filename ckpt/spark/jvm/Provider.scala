package ckpt.spark

import java.util.{Arrays, UUID}
import java.util.concurrent.{ConcurrentHashMap, Semaphore, TimeUnit}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.slf4j.LoggerFactory

/**
 * Keeps the state of one partition of a stateful operator in a ckpt backend.
 *
 * When a commit returns, its version is durable in the backend; any version that Spark may still ask for can be opened
 * from there. The working state is in memory, one version at a time, and one task at a time has it open.
 */
class CkptStateStoreProvider extends LineProvider {
  import CkptStateStoreProvider._

  private var id: StateStoreId = _
  private var keySchema: StructType = _
  private var valueSchema: StructType = _
  private var conf: StateStoreConf = _
  private var hadoopConf: Configuration = _
  private var columnFamilies: Boolean = _
  private var schemas: Option[StateSchemaProvider] = _
  private var namespace: String = _
  private var sidecar: Sidecar = _

  private val encodings = new ConcurrentHashMap[String, Encoding]
  private val state = new StateMap
  private val door = new Semaphore(1)
  @volatile private var newestCommitted = 0L
  @volatile private var keptFrom = 0L
  @volatile private var closed = false
  private var madeFolder = false

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    require(useColumnFamilies || !useMultipleValuesPerKey, "several values for a key need column families")
    id = stateStoreId
    this.keySchema = keySchema
    this.valueSchema = valueSchema
    conf = storeConfs
    this.hadoopConf = hadoopConf
    columnFamilies = useColumnFamilies
    schemas = stateSchemaProvider
    namespace = Namespace.of(stateStoreId, hadoopConf)
    sidecar = Sidecar.of(Settings.sidecar(storeConfs))
    register(StateMap.Default, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey)
  }

  override def stateStoreId: StateStoreId = id

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = open(version, stateStoreCkptId, readOnly = false, loadEmpty)

  override def getReadStore(version: Long, uniqueId: Option[String]): ReadStateStore =
    open(version, uniqueId, readOnly = true, empty = false)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = readStore match {
    // The provider may have been replaced meanwhile; the store stays with the one that opened it.
    case store: CkptStateStore if store.id == id && store.version == version => store.allowWrites()
    case other => throw new IllegalArgumentException(s"$other is not a store of $id at version $version")
  }

  override def close(): Unit = {
    closed = true
    if (door.tryAcquire()) endOfUse()
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = Metrics.all

  /** A failure must not reach Spark, which would unload the store for it. */
  override protected def forgetOldVersions(): Unit = {
    val keepFrom = newestCommitted - conf.minVersionsToRetain
    if (keepFrom > 0 && keepFrom - keptFrom >= math.max(1, conf.minVersionsToDelete)) {
      try {
        sidecar.call(_.truncate(namespace, keepFrom))
        keptFrom = keepFrom
      } catch {
        case NonFatal(e) => log.warn(s"could not forget versions below $keepFrom of $namespace; trying again later", e)
      }
    }
  }

  private def open(version: Long, commitId: Option[String], readOnly: Boolean, empty: Boolean): CkptStateStore = {
    if (version < 0) throw cannotLoad("UNEXPECTED_VERSION", Map("version" -> version.toString))
    if (!door.tryAcquire(WaitForTaskS, TimeUnit.SECONDS)) {
      throw new SparkException(s"$id is still open in another task after $WaitForTaskS s; the retry will find it free")
    }
    try {
      if (closed) throw new IllegalStateException(s"$id was closed")
      val wanted = At(version, if (conf.enableStateStoreCheckpointIds) commitId else None)
      val began = System.nanoTime()
      val fromMemory = !empty && state.rollBackTo(wanted)
      if (!fromMemory) {
        state.clear()
        if (version > 0 && !empty) load(wanted)
      }
      encodings.forEach((name, encoding) => if (encoding.ordered) state.find(name).foreach(_.keepOrdered()))
      new CkptStateStore(this, id, wanted, state, encodings, columnFamilies, readOnly,
        Opened(fromMemory, empty, System.nanoTime() - began))
    } catch {
      case e: Throwable =>
        door.release()
        throw e
    }
  }

  private def load(wanted: At): Unit = {
    try sidecar.call { client =>
      state.clear() // a load that broke off left rows behind
      client.load(namespace, wanted.version, wanted.commitId) { block =>
        block.foreach { (bytes, key, keyBytes, value, valueBytes) =>
          val family = ((bytes(key) & 0xff) << 8) | (bytes(key + 1) & 0xff)
          state.load(
            family,
            Arrays.copyOfRange(bytes, key + StateMap.IdBytes, key + keyBytes),
            Arrays.copyOfRange(bytes, value, value + valueBytes))
        }
      }
    } catch {
      case e: Throwable =>
        state.clear()
        throw e match {
          case missing: SidecarError if missing.isMissingVersion => missingVersion(wanted, missing)
          case other => other
        }
    }
    state.loaded(wanted)
  }

  private def missingVersion(wanted: At, cause: Throwable): SparkException = {
    val commit = wanted.commitId.map(id => s" (commit $id)").getOrElse("")
    val place = s"version ${wanted.version}$commit of namespace $namespace"
    cannotLoad("CANNOT_READ_STREAMING_STATE_FILE", Map("fileToRead" -> place), cause)
  }

  private def cannotLoad(condition: String, parameters: Map[String, String], cause: Throwable = null): SparkException =
    new SparkException(s"CANNOT_LOAD_STATE_STORE.$condition", parameters, cause)

  // -- for the store that is open --------------------------------------------------------------

  private[spark] def register(
      name: String,
      keySchema: StructType,
      valueSchema: StructType,
      spec: KeyStateEncoderSpec,
      multipleValues: Boolean): Encoding =
    encodings.computeIfAbsent(name, { _ =>
      schemas match {
        // Spark's suites add schemas while they run.
        case Some(test: TestStateSchemaProvider) => test.captureSchema(name, keySchema, valueSchema)
        case _ =>
      }
      Encoding(name, spec, valueSchema, columnFamilies, multipleValues, conf.stateStoreEncodingFormat, schemas)
    })

  /** Refuses rows that are not of the schema: state of another query, or of a query that was changed. */
  private[spark] def validate(key: UnsafeRow, value: UnsafeRow): Unit =
    if (!columnFamilies) StateStoreProvider.validateStateRowFormat(key, keySchema, value, valueSchema, id, conf)

  /** Makes the open transaction durable and says which commit it is now. */
  private[spark] def commit(from: At, onNothing: Boolean, rows: ChangedRows): At = {
    if (!madeFolder) {
      // Spark's `statestore` reader finds partitions by listing their folders.
      val folder = id.storeCheckpointLocation()
      folder.getFileSystem(hadoopConf).mkdirs(folder)
      madeFolder = true
    }
    val to = At(from.version + 1, Some(UUID.randomUUID().toString))
    // With format 1 the last writer wins, which is what a commit without a base means.
    val base =
      if (onNothing || (conf.enableStateStoreCheckpointIds && from.version == 0)) Some(EmptyState)
      else if (conf.enableStateStoreCheckpointIds) from.commitId
      else None
    sidecar.call(_.commit(namespace, to.version, base, to.commitId.get, rows))
    state.seal(to, retain = math.max(1, conf.maxVersionsToRetainInMemory))
    newestCommitted = to.version
    if (conf.commitValidationEnabled) StateStore.reportCommitToCoordinator(to.version, id, hadoopConf)
    to
  }

  /** The store that was open is done with the state. */
  private[spark] def endOfUse(): Unit = {
    if (closed) state.clear()
    door.release()
  }
}

object CkptStateStoreProvider {
  private val log = LoggerFactory.getLogger(classOf[CkptStateStoreProvider])
  private val WaitForTaskS = 60L

  /** The base of first commits: both of two attempts at version 1 stay readable. */
  private val EmptyState = "0"
}

/** How a store was opened; `onNothing` if Spark asked for an empty one whatever there was before. */
final case class Opened(fromMemory: Boolean, onNothing: Boolean, nanos: Long)
