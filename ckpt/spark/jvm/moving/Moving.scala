package ckpt.spark

import java.util.concurrent.{ConcurrentHashMap, ExecutionException, ExecutorService, Executors, Future, TimeUnit}
import java.util.concurrent.TimeoutException
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import ckpt.spark.moving.{CheckpointLogs, MovedFamily, MovedStore, MovedStores, RowsFingerprint, StateCopy}
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, render}

/** What stands in the way, in one line for the user. Nothing was changed. */
final class MovingRefused(message: String) extends RuntimeException(message)

/** What went wrong while state was copied. The checkpoint is what it was. */
final class MovingFailed(message: String, cause: Throwable) extends RuntimeException(message, cause)

/**
 * Moves the state of a checkpoint from the provider that it is with to another, so that the query goes on with the next
 * batch there.
 *
 * The state of the last committed batch is copied under the same version, and read back; that changes nothing for the
 * query. `switch` then says in the checkpoint which provider it is with. It replaces several small files one by one, in
 * an order in which the query can be started after each of them, by the old provider or by the new.
 *
 * Python calls it and knows its exceptions by name, so this file is in the package `ckpt.spark`.
 */
final class Moving(spark: SparkSession, checkpoint: String, targetName: String) {
  import Moving._

  private val hadoopConf = spark.sessionState.newHadoopConf()
  private val root = {
    val path = new Path(checkpoint)
    val fs = path.getFileSystem(hadoopConf)
    if (!fs.exists(path)) throw new MovingRefused(s"$checkpoint does not exist; check the path")
    fs.makeQualified(path)
  }
  private val logs = new CheckpointLogs(root, hadoopConf)
  private val source = Keepers.find(_.providerClass == logs.provider).getOrElse(throw new MovingRefused(
    s"the state of $root is with ${logs.provider}, which is unknown here; it can be moved if it is with Spark's " +
      "default or RocksDB provider"))
  private val target = Keepers.find(_.name == targetName).get
  if (source == target) {
    throw new MovingRefused(s"the state of $root is with ${target.called} already; there is nothing to move")
  }
  if (source != Ckpt && target != Ckpt) {
    throw new MovingRefused(s"the state of $root is with ${source.called}, not with ckpt; import it first")
  }
  private val stores = new MovedStores(logs, hadoopConf).all
  if (target == Default) stores.find(_.hasFamilies).foreach { store =>
    throw new MovingRefused(s"operator ${store.operator} (${store.operatorName}) of $root has column families, which " +
      "Spark's default provider does not know; export to rocksdb")
  }

  private val state = new Path(root, "state")
  private val scratch = new Path(root, ScratchFolder)
  private val from = confOf(source, ids = logs.stateIds.isDefined)
  // ckpt tells attempts apart by ids; Spark's own providers start with what every one of them reads.
  private val to = confOf(target, ids = target == Ckpt)

  private val copied = new AtomicInteger
  private val rows = new AtomicLong
  private val commitIds = new ConcurrentHashMap[(Long, Int, Int), String]
  private var work: Seq[Future[_]] = Nil
  private var workers: ExecutorService = _

  /** What would be moved, as JSON. */
  def plan: String = compact(render(JObject(
    "checkpoint" -> JString(root.toString),
    "batch" -> JLong(logs.committed),
    "planned" -> logs.planned.map(JLong(_)).getOrElse(JNull),
    "source" -> JString(source.name),
    "target" -> JString(target.name),
    "stores" -> JArray(stores.map { store =>
      JObject(
        "operator" -> JLong(store.operator),
        "name" -> JString(store.operatorName),
        "store" -> JString(store.name),
        "partitions" -> JInt(store.partitions),
        "families" -> JArray(store.families.filterNot(_.isDefault).map(family => JString(family.name)).toList))
    }.toList))))

  def copiedStores: Int = copied.get
  def copiedRows: Long = rows.get

  /** Begins to copy in the background. */
  def start(): Unit = {
    workers = Executors.newFixedThreadPool(spark.sparkContext.defaultParallelism, { task =>
      val thread = new Thread(task, "ckpt-moving")
      thread.setDaemon(true)
      thread
    })
    work = for (store <- stores; partition <- 0 until store.partitions) yield workers.submit[Unit](() => {
      SparkSession.setActiveSession(spark)
      copy(store, partition)
    })
    workers.shutdown()
  }

  /** Whether everything is copied, after at most so many milliseconds; throws what a copy failed with. */
  def isDone(millis: Long): Boolean = {
    val until = System.nanoTime() + millis * 1000000
    try {
      work.foreach(_.get(math.max(0, until - System.nanoTime()), TimeUnit.NANOSECONDS))
      true
    } catch {
      case _: TimeoutException => false
      case e: ExecutionException =>
        close()
        throw e.getCause
    }
  }

  def close(): Unit = if (workers != null) workers.shutdownNow()

  /** Lets the query go on with the new provider; the paths of the files that were kept as they were. */
  def switch(): java.util.List[String] = {
    require(copied.get == stores.map(_.partitions).sum, "the switch comes after everything is copied")
    if (logs.wentOn) {
      throw new MovingRefused(s"$root went on meanwhile, so its query is running; stop it, then move it")
    }
    val commit = if (target == Ckpt) logs.stateIds match {
      // The commits have the ids that the checkpoint names already.
      case Some(_) => None
      case None => Some(logs.commitWith(Some(newIds)))
    } else Some(logs.commitWith(None))
    val offsets = logs.offsetsWith(target.providerClass)
    val kept = (logs.offsets ++ commit.map(_ => logs.commit)).map(logs.backUp(_, source.name))
    // The newest offsets decide. ckpt finds the state of a batch also without ids, the others only without them.
    val replaced = if (target == Ckpt) offsets ++ commit else commit.toSeq ++ offsets
    replaced.foreach(logs.replace)
    scratch.getFileSystem(hadoopConf).delete(scratch, true)
    kept.map(_.toString).asJava
  }

  private def newIds: Map[Long, Seq[Seq[String]]] = stores.groupBy(_.operator).map { case (operator, itsStores) =>
    operator -> (0 until itsStores.head.partitions).map { partition =>
      itsStores.sortBy(_.position).map(store => commitIds.get((operator, partition, store.position)))
    }
  }

  private def copy(store: MovedStore, partition: Int): Unit = {
    val folder = state.toString
    try {
      val copier = new StateCopy(store, partition, hadoopConf)
      val id = idOf(store, partition)
      var read = RowsFingerprint(0, 0)
      def fill(put: (MovedFamily, UnsafeRow, UnsafeRow) => Unit): Unit =
        read = copier.read(from, folder, logs.version, id) { (family, key, value) =>
          put(family, key, value)
          rows.incrementAndGet()
        }
      val newId = target match {
        case Default =>
          copier.writeSnapshot(to, folder, logs.version, scratch.toString)(fill)
          None
        case RocksDb => copier.write(to, folder, logs.version, None)(fill)
        case Ckpt => copier.write(to, folder, logs.version, id)(fill)
      }
      newId.foreach(commitIds.put((store.operator, partition, store.position), _))
      val made = copier.read(to, folder, logs.version, newId)((_, _, _) => ())
      if (made != read) {
        throw new IllegalStateException(s"${read.rows} rows were written, but ${made.rows} or others were read back")
      }
      copied.incrementAndGet()
    } catch {
      case e: InterruptedException => throw e
      case NonFatal(e) => throw new MovingFailed(
        s"operator ${store.operator}, partition $partition, store ${store.name} of $root cannot be moved: " +
          e.getMessage, e)
    }
  }

  private def idOf(store: MovedStore, partition: Int): Option[String] =
    logs.stateIds.map(_.get(store.operator).flatMap(_.lift(partition)).flatMap(_.lift(store.position)).getOrElse(
      throw new IllegalStateException(s"${logs.commit.path} does not name it")))

  /** The settings of the checkpoint, as Spark would run its query with them, and this provider. */
  private def confOf(keeper: Keeper, ids: Boolean): StateStoreConf = {
    val conf = spark.sessionState.conf.clone()
    OffsetSeqMetadata.setSessionConf(logs.settings, conf)
    conf.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, keeper.providerClass)
    conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, if (ids) 2 else 1)
    // There is no query, and so there may be no coordinator to tell what happens.
    conf.setConf(SQLConf.STATE_STORE_COMMIT_VALIDATION_ENABLED, false)
    conf.setConf(SQLConf.STATE_STORE_COORDINATOR_REPORT_SNAPSHOT_UPLOAD_LAG, false)
    // Lets the default provider write a snapshot whenever it is asked to, which only an export does.
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, 0)
    StateStoreConf(conf)
  }
}

object Moving {
  private final val Sparks = "org.apache.spark.sql.execution.streaming.state"
  private[spark] val DefaultProvider = s"$Sparks.HDFSBackedStateStoreProvider"

  /** A provider: its name on the command line, its class, and its name in messages. */
  private sealed abstract class Keeper(val name: String, val providerClass: String, val called: String)
  private case object Ckpt extends Keeper("ckpt", classOf[CkptStateStoreProvider].getName, "ckpt")
  private case object Default
      extends Keeper("default", DefaultProvider, "Spark's default provider")
  private case object RocksDb
      extends Keeper("rocksdb", s"$Sparks.RocksDBStateStoreProvider", "Spark's RocksDB provider")

  private val Keepers: Seq[Keeper] = Seq(Ckpt, Default, RocksDb)

  /** Hidden, so that Spark takes no notice of it. */
  private val ScratchFolder = ".ckpt-export"
}
