package ckpt.spark.state

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** Where the state of a store is kept, and the checkpoint and the query that it belongs to. */
final case class StoreOrigin(namespace: String, checkpoint: String, query: String)

/**
 * The namespace of a store: `spark/<query>/<operator>/<partition>/<store>`.
 *
 * The query is the id that Spark writes into a new checkpoint's `metadata`. So a checkpoint that is moved finds its
 * state, and a new checkpoint in the folder of a deleted one does not find the state of that one.
 */
object Namespace {
  private val MaxBytes = 1024
  private val RunIdKey = "sql.streaming.runId" // StreamExecution.RUN_ID_KEY and MicroBatchExecution.BATCH_ID_KEY
  private[spark] val BatchIdKey = "streaming.sql.batchId"
  private val MostQueries = 100
  private val QueryId = "\"id\"\\s*:\\s*\"([0-9A-Za-z-]{1,64})\"".r.unanchored

  /** The queries of checkpoints by run, batch and root. */
  private val queries = new ConcurrentHashMap[(String, Option[String], Path), String]

  def of(id: StateStoreId, hadoopConf: Configuration): StoreOrigin = {
    val root = new Path(id.checkpointRootLocation)
    val store = s"${id.operatorId}/${id.partitionId}/${id.storeName}"
    // The root is the folder `state` of a query's checkpoint; elsewhere, as in Spark's own suites, it is any folder.
    queryId(root, hadoopConf) match {
      case Some(query) => StoreOrigin(bounded("spark", query, s"/$store"), root.getParent.toString, query)
      case None => StoreOrigin(bounded("spark", shown(root), s"/$store"), root.toString, query = "")
    }
  }

  /** Where the tables by which a query's keys are placed are kept; `root` is the folder of its state. Read once for a run. */
  def ofTables(root: String, run: String, hadoopConf: => Configuration): String = {
    val path = new Path(root)
    bounded("rebalance", knownQuery(run, None, path, hadoopConf).getOrElse(shown(path)), "")
  }

  /** Where the loads of the keys that those tables place are kept. */
  def ofLoads(tables: String): String = s"$tables/loads"

  private def bounded(kind: String, owner: String, rest: String): String = {
    val whole = s"$kind/$owner$rest"
    if (whole.getBytes(UTF_8).length <= MaxBytes) whole else s"$kind/${digest(whole)}$rest"
  }

  /** Without the scheme of local files: a query names its root `file:/x`, and the state reader names it `/x`. */
  private def shown(root: Path): String = {
    val uri = root.toUri
    val path = uri.getPath.stripPrefix("/")
    if (uri.getScheme == null || uri.getScheme == "file") path
    else s"${uri.getScheme}:${Option(uri.getAuthority).getOrElse("")}/$path"
  }

  /** Read once for each batch of a run: no checkpoint is begun again meanwhile, and a join has hundreds of stores. */
  private def queryId(root: Path, hadoopConf: Configuration): Option[String] =
    Option(hadoopConf.get(RunIdKey)) match {
      case None => readQueryId(root, hadoopConf)
      case Some(run) =>
        knownQuery(run, Option(TaskContext.get()).map(_.getLocalProperty(BatchIdKey)), root, hadoopConf)
    }

  private def knownQuery(run: String, batch: Option[String], root: Path, hadoopConf: => Configuration): Option[String] = {
    if (queries.size >= MostQueries) queries.clear()
    Option(queries.computeIfAbsent((run, batch, root), _ => readQueryId(root, hadoopConf).orNull))
  }

  private def readQueryId(root: Path, hadoopConf: Configuration): Option[String] = {
    val metadata = new Path(root.getParent, "metadata")
    try {
      val in = metadata.getFileSystem(hadoopConf).open(metadata)
      try {
        new String(in.readNBytes(4096), UTF_8) match {
          case QueryId(query) => Some(query)
          case _ => None
        }
      } finally in.close()
    } catch {
      case _: FileNotFoundException => None
      case NonFatal(e) => throw new IOException(s"cannot read $metadata, which names the query: $e", e)
    }
  }

  private def digest(text: String): String =
    MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)).take(16).map(b => f"$b%02x").mkString
}
