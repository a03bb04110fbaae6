package ckpt.spark

import java.nio.file.Files
import java.util.concurrent.{ConcurrentHashMap, Semaphore, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import ckpt.spark.reading.Replay
import ckpt.spark.routing.Placement
import ckpt.spark.spill.{Budget, Scratch, ScratchFolder, StoreMemory, SpillError}
import ckpt.spark.state._
import ckpt.spark.wire.{CommitInfo, CountedRequests, History, Settings, Sidecar, SidecarError}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.slf4j.LoggerFactory

/**
 * Keeps the state of one partition of a stateful operator in a ckpt backend.
 *
 * When a commit returns, its version is durable in the backend; any version that Spark may still ask for can be opened
 * from there. The working state is in memory, one version at a time, and one task at a time has it open.
 *
 * Settings and checkpoints name this class, so it is in the package `ckpt.spark` and not in that of its folder.
 */
class CkptStateStoreProvider extends SparkProvider with Replay with StateOwner {
  import CkptStateStoreProvider._

  private var id: StateStoreId = _
  private var keySchema: StructType = _
  private var valueSchema: StructType = _
  private var conf: StateStoreConf = _
  private var hadoopConf: Configuration = _
  private var columnFamilies: Boolean = _
  private var schemas: Option[StateSchemaProvider] = _
  private var origin: StoreOrigin = _
  private var provenance: Array[Byte] = _
  private var sidecar: Sidecar = _
  private var requests: CountedRequests = _

  private val encodings = new ConcurrentHashMap[String, Encoding]
  private val state = new StateMap
  private val exclusive = new Semaphore(1)
  @volatile private var newestCommitted = 0L
  @volatile private var keptFrom = 0L
  @volatile private var closed = false
  private var madeFolder = false
  private var tipWhenOpened: Option[CommitInfo] = None // with format 1 only
  private var memoryBytes: Long = _
  private var lazyRecovery = false
  private var reader: CommitReader = _
  private var placement: Placement = _
  private val memory = new StoreMemory(() => spillIfIdle())

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
    origin = Namespace.of(stateStoreId, hadoopConf)
    provenance = Catalogue.provenance(origin)
    sidecar = Sidecar.of(Settings.sidecar(storeConfs))
    memoryBytes = Settings.memoryBytes(storeConfs)
    lazyRecovery = Settings.lazyRecovery(storeConfs)
    requests = new CountedRequests(sidecar)
    reader = readerOf(origin.namespace)
    placement = new Placement(id, origin.namespace, hadoopConf, readerOf, onTheTipOf, (family, as) =>
      Option(encodings.get(family)).getOrElse(Encoding(family, as, columnFamilies, schemas)))
    removedStaleScratch
    register(StateMap.Default, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, internal = false)
  }

  override def stateStoreId: StateStoreId = id

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore =
    open(version, stateStoreCkptId, readOnly = false, loadEmpty).countSnapshot(forceSnapshotOnCommit)

  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore =
    open(version, uniqueId, readOnly = true, empty = false)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = readStore match {
    // The provider may have been replaced meanwhile; the store stays with the one that opened it.
    case store: CkptStateStore if store.id == id && store.version == version =>
      store.allowWrites().countSnapshot(forceSnapshotOnCommit)
    case other => throw new IllegalArgumentException(s"$other is not a store of $id at version $version")
  }

  override def close(): Unit = {
    closed = true
    if (exclusive.tryAcquire()) endOfUse()
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = Metrics.all

  /** A failure must not reach Spark, which would unload the store for it. */
  override protected def forgetOldVersions(): Unit = {
    val keepFrom = newestCommitted - conf.minVersionsToRetain
    if (keepFrom > 0 && keepFrom - keptFrom >= math.max(1, conf.minVersionsToDelete)) {
      try {
        sidecar.call(_.truncate(origin.namespace, keepFrom))
        keptFrom = keepFrom
      } catch {
        case NonFatal(e) => log.warn(s"could not forget versions below $keepFrom of ${origin.namespace}; trying again later", e)
      }
    }
  }

  override protected def history: History = sidecar.call(_.history(origin.namespace))

  override protected def followsCommitIds: Boolean = conf.enableStateStoreCheckpointIds

  override protected def encodingOf(family: String): Option[Encoding] = Option(encodings.get(family))

  override protected def open(
      version: Long,
      commitId: Option[String],
      readOnly: Boolean,
      empty: Boolean): CkptStateStore = {
    if (version < 0) throw unexpectedVersion(version)
    acquire()
    try {
      refuseClosedOrFailed()
      val began = System.nanoTime()
      requests.takeCount()
      val wanted = if (conf.enableStateStoreCheckpointIds) CommitRef(version, commitId) else onTheTip(version, empty)
      val committed = restore(wanted, empty)
      fitIntoMemory()
      val rows = beginTransaction(committed, empty)
      new CkptStateStore(this, id, wanted, rows, encodings, columnFamilies, readOnly,
        Opened(committed.fromMemory, empty, System.nanoTime() - began))
    } catch {
      case e: Throwable =>
        leave()
        throw StateStoreErrors.cannotLoadStore(e)
    }
  }

  /** On return the caller alone has the state, until `leave`. */
  private def acquire(): Unit = if (!exclusive.tryAcquire(WaitForTaskS, TimeUnit.SECONDS)) {
    throw new SparkException(s"$id is still open in another task after $WaitForTaskS s; the retry will find it free")
  }

  /** On return `state` has exactly the rows of the wanted commit, or none where Spark asks for an empty store. */
  private def restore(wanted: CommitRef, empty: Boolean): CommittedState = {
    Budget.enter(memory)
    val fromMemory = !empty && rollBackTo(wanted)
    if (!fromMemory) {
      state.clear()
      if (wanted.version > 0 && !empty) load(wanted)
    }
    CommittedState(wanted, state, fromMemory)
  }

  /** On return the stores of this executor hold no more memory than is allowed, as far as the others are not in use. */
  private def fitIntoMemory(): Unit = {
    // Only into twice the room: bringing back a store that is soon spilled again costs more than leaving it on disk.
    if (state.spilledBytes > 0 && state.spilledBytes < (memoryBytes - Budget.heldBytes) / 2) state.bringBack()
    makeRoom(if (!state.isPartial) spill())
  }

  /** On return the batch's transaction is open. A failure leaves the state as it was committed. */
  private def beginTransaction(committed: CommittedState, empty: Boolean): StateMap =
    try {
      describeFamilies()
      begin(committed, empty)
    } catch {
      case e: Throwable =>
        state.revert()
        throw e
    }

  /** On return the catalogue describes the default family, and families that are scanned in order are kept in order. */
  private def describeFamilies(): Unit = {
    state.create(StateMap.Default, encodings.get(StateMap.Default).description)
    encodings.forEach((name, encoding) => if (encoding.ordered) state.find(name).foreach(_.keepOrdered()))
  }

  /**
   * The state that this batch begins with, made of the state as committed: rows whose keys another partition has by the
   * routing table of this batch are gone, and rows whose keys this partition has are here.
   *
   * Rows are put and removed in the same map. They are part of the batch's transaction: its commit makes them durable,
   * and its abort undoes them. A retry begins with the same committed state, so it comes to the same result.
   */
  private def begin(committed: CommittedState, empty: Boolean): StateMap = {
    placement.begin(if (empty) CommittedState(CommitRef(0, None), committed.rows, committed.fromMemory) else committed)
    committed.rows
  }

  /** A task that failed meanwhile, on another of its threads, would never give the store back. */
  private def refuseClosedOrFailed(): Unit = {
    if (closed) throw new IllegalStateException(s"$id was closed")
    Option(TaskContext.get()).filter(_.isFailed()).foreach { task =>
      var reason: Throwable = null
      task.addTaskFailureListener((_, failure) => reason = failure) // is called at once, as the task has failed
      throw reason
    }
  }

  /**
   * The commit of a version, where Spark does not say which one it means: the newest builds on it. What is in memory as
   * that version may be another, which a later attempt of another executor has replaced.
   */
  private def onTheTip(version: Long, empty: Boolean): CommitRef = {
    val known = requests.call(_.history(origin.namespace))
    tipWhenOpened = known.newest
    if (version == 0 || empty) CommitRef(version, None) else onTheTip(known, version)
  }

  private def onTheTipOf(namespace: String, version: Long): CommitRef =
    onTheTip(requests.call(_.history(namespace)), version)

  private def onTheTip(known: History, version: Long): CommitRef = {
    val missing = new NoSuchElementException(s"no commit of version $version leads to the newest")
    val found = known.chain(known.tip).getOrElse(version, throw missingVersion(CommitRef(version, None), missing))
    CommitRef(version, Some(found.id))
  }

  /** With format 1 the last one to commit a version wins, but not once others have built on what it would replace. */
  private def refuseLate(version: Long): Unit = {
    val tip = requests.call(_.history(origin.namespace)).newest
    for (newest <- tip if newest.version > version && tip != tipWhenOpened) throw new IllegalStateException(
      s"another attempt has committed version $version of ${origin.namespace}, and version ${newest.version} was " +
        "committed since: this attempt is late, and what it did is not needed")
  }

  private def readerOf(namespace: String): CommitReader =
    new CommitReader(requests, namespace, () => makeRoom(spill()))

  private def rollBackTo(wanted: CommitRef): Boolean =
    try !state.isLost && state.rollBackTo(wanted)
    catch { case _: SpillError => false }

  /** Everything at once, or, if keys may come later and the commit says how many there are, nothing but the catalogue. */
  private def load(wanted: CommitRef): Unit = {
    try {
      val byId = conf.enableStateStoreCheckpointIds && wanted.commitId.isDefined
      val begun = lazyRecovery && byId && state.begin(wanted, reader, encodings.keySet.asScala)
      if (!begun) reader.load(wanted, state)
    } catch {
      case e: Throwable =>
        state.clear()
        throw e match {
          case missing: SidecarError if missing.isMissingVersion => missingVersion(wanted, missing)
          case other => other
        }
    }
  }

  override protected def read(commit: CommitRef): StateMap = {
    val state = new StateMap
    if (commit.version > 0) new CommitReader(requests, origin.namespace, () => ()).load(commit, state)
    state
  }

  override protected def missingVersion(wanted: CommitRef, cause: Throwable): SparkException = {
    val gone = missing(wanted, cause)
    // Of an exception with a condition Spark shows only its own text, so the reason has to be in that.
    val told = s"${named(wanted)} (${gone.getMessage})"
    cannotLoad("CANNOT_READ_STREAMING_STATE_FILE", Map("fileToRead" -> told), gone)
  }

  private def missing(wanted: CommitRef, cause: Throwable): MissingStateError = {
    val there = Try(history.commits.map(_.version)).toOption
    val retained = conf.minVersionsToRetain
    MissingStateError(named(wanted), origin.namespace, sidecar.backend, wanted.version, retained, there, cause)
  }

  private def named(at: CommitRef): String =
    s"version ${at.version}${at.commitId.map(id => s" (commit $id)").getOrElse("")} of namespace ${origin.namespace}"

  override protected def unexpectedVersion(version: Long): SparkException =
    cannotLoad("UNEXPECTED_VERSION", Map("version" -> version.toString))

  private def cannotLoad(condition: String, parameters: Map[String, String], cause: Throwable = null): SparkException =
    new SparkException(s"CANNOT_LOAD_STATE_STORE.$condition", parameters, cause)

  // -- for the store that is open --------------------------------------------------------------

  override private[spark] def register(
      name: String,
      keySchema: StructType,
      valueSchema: StructType,
      spec: KeyStateEncoderSpec,
      multipleValues: Boolean,
      internal: Boolean): Encoding =
    encodings.computeIfAbsent(name, { _ =>
      schemas match {
        // Spark's suites add schemas while they run.
        case Some(test: TestStateSchemaProvider) => test.captureSchema(name, keySchema, valueSchema)
        case _ =>
      }
      val format = Encoding.word(conf.stateStoreEncodingFormat)
      val description = Description(internal, multipleValues, format, keySchema, valueSchema, spec)
      Encoding(name, description, columnFamilies, schemas)
    })

  override private[spark] def validate(key: UnsafeRow, value: UnsafeRow): Unit =
    if (!columnFamilies) StateStoreProvider.validateStateRowFormat(key, keySchema, value, valueSchema, id, conf)

  override private[spark] def commit(from: CommitRef, onNothing: Boolean, commitId: String): DurableCommit = {
    if (!madeFolder) {
      // Spark's `statestore` reader finds partitions by listing their folders.
      makeFolder(id.storeCheckpointLocation(), hadoopConf)
      madeFolder = true
    }
    state.stamp(provenance, placement.layout)
    val rows = new ChangedRows(state.changes)
    val to = CommitRef(from.version + 1, Some(commitId))
    // With format 1 the last writer wins, which is what a commit without a base means.
    val base =
      if (onNothing || (conf.enableStateStoreCheckpointIds && from.version == 0)) Some(EmptyState)
      else if (conf.enableStateStoreCheckpointIds) from.commitId
      else None
    if (!conf.enableStateStoreCheckpointIds) refuseLate(to.version)
    val durableWrites =
      try requests.call(_.commit(origin.namespace, to.version, base, commitId, rows))
      catch { case gone: SidecarError if gone.isMissingVersion => throw missing(from, gone) }
    try state.seal(to, retain = math.max(1, conf.maxVersionsToRetainInMemory))
    catch { case e: SpillError => log.warn(s"${e.getMessage}; version ${to.version} of ${origin.namespace} is durable") }
    newestCommitted = to.version
    if (conf.commitValidationEnabled) StateStore.reportCommitToCoordinator(to.version, id, hadoopConf)
    DurableCommit(to, rows, durableWrites, requests.takeCount())
  }

  override private[spark] def endOfUse(): Unit = {
    try if (!closed) makeRoom(giveUpMemory())
    catch { case e: SpillError => log.warn(s"${e.getMessage}; until then more memory is used than was allowed") }
    finally leave()
  }

  /** Moves stores out of memory until all fit, this one last. */
  private def makeRoom(moveOwn: => Unit): Unit = {
    report()
    Budget.fit(memoryBytes, memory) {
      moveOwn
      report()
    }
  }

  /** Between uses. What is complete goes to local disk; of what is not, the backend has all. */
  private def giveUpMemory(): Unit = if (state.isPartial) state.clear() else spill()

  private def spill(): Unit = if (!state.isSpilled) state.spill(Scratch.of(memoryBytes).space())

  private def spillIfIdle(): Unit = if (exclusive.tryAcquire()) {
    try if (!closed) giveUpMemory()
    finally leave()
  }

  override private[spark] def takeFetched(): Long = reader.takeFetched()

  override private[spark] def movedRows: Long = placement.migrated.arrived

  private def report(): Unit = memory.report(state.memoryBytes, state.spillableBytes)

  private def leave(): Unit = {
    if (closed) {
      state.clear()
      Budget.leave(memory)
    } else report()
    exclusive.release()
  }
}

object CkptStateStoreProvider {
  private val log = LoggerFactory.getLogger(classOf[CkptStateStoreProvider])
  private val WaitForTaskS = 60L

  /** Once for each JVM. */
  private lazy val removedStaleScratch: Unit = ScratchFolder.removeStale()

  /** On a local disk without Hadoop, which has `chmod` started for each folder: 200 partitions are a second of that. */
  private def makeFolder(folder: Path, hadoopConf: Configuration): Unit =
    if (folder.toUri.getScheme == "file") Files.createDirectories(java.nio.file.Path.of(folder.toUri.getPath))
    else folder.getFileSystem(hadoopConf).mkdirs(folder)

  /** The base of first commits: both of two attempts at version 1 stay readable. */
  private val EmptyState = "0"
}
