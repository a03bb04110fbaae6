package ckpt.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** Where the state of a store is kept, and the checkpoint and the query that it belongs to. */
final case class Place(namespace: String, checkpoint: String, query: String)

/**
 * The namespace of a store: `spark/<query>/<operator>/<partition>/<store>`.
 *
 * The query is the id that Spark writes into a new checkpoint's `metadata`: a checkpoint that is moved finds its state,
 * and one that was deleted and begun again in the same place never meets the versions of its former life.
 */
object Namespace {
  private val MaxBytes = 1024
  private val QueryId = "\"id\"\\s*:\\s*\"([0-9A-Za-z-]{1,64})\"".r.unanchored

  def of(id: StateStoreId, hadoopConf: Configuration): Place = {
    val root = new Path(id.checkpointRootLocation)
    val store = s"${id.operatorId}/${id.partitionId}/${id.storeName}"
    // The root is the folder `state` of a query's checkpoint; elsewhere, as in Spark's own suites, it is any folder.
    queryId(root, hadoopConf) match {
      case Some(query) => Place(bounded(query, store), root.getParent.toString, query)
      case None => Place(bounded(shown(root), store), root.toString, query = "")
    }
  }

  private def bounded(owner: String, store: String): String = {
    val whole = s"spark/$owner/$store"
    if (whole.getBytes(UTF_8).length <= MaxBytes) whole else s"spark/${digest(whole)}/$store"
  }

  /** A query names its root `file:/x`, the state reader `/x`: both are `x`. */
  private def shown(root: Path): String = {
    val uri = root.toUri
    val path = uri.getPath.stripPrefix("/")
    if (uri.getScheme == null || uri.getScheme == "file") path
    else s"${uri.getScheme}:${Option(uri.getAuthority).getOrElse("")}/$path"
  }

  private def queryId(root: Path, hadoopConf: Configuration): Option[String] = {
    val metadata = new Path(root.getParent, "metadata")
    try {
      val fs = metadata.getFileSystem(hadoopConf)
      if (!fs.exists(metadata)) None
      else {
        val in = fs.open(metadata)
        try {
          new String(in.readNBytes(4096), UTF_8) match {
            case QueryId(query) => Some(query)
            case _ => None
          }
        } finally in.close()
      }
    } catch {
      case NonFatal(e) => throw new java.io.IOException(s"cannot read $metadata, which names the query: $e", e)
    }
  }

  private def digest(text: String): String =
    MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)).take(16).map(b => f"$b%02x").mkString
}
