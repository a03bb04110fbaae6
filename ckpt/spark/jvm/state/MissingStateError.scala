package ckpt.spark.state

import java.io.IOException

import ckpt.spark.wire.Settings

/** State that Spark asks for and the backend does not hold: no outage, so the message names likely causes. */
final class MissingStateError(message: String, cause: Throwable) extends IOException(message, cause)

object MissingStateError {

  /** `there` are the versions that the backend holds of the namespace, if it could be asked. */
  def apply(
      wanted: String,
      namespace: String,
      address: String,
      version: Long,
      retained: Int,
      there: Option[Seq[Long]],
      cause: Throwable): MissingStateError = {
    val found = there match {
      case Some(Seq()) => s"it holds nothing of $namespace"
      case Some(versions) => s"of $namespace it holds versions ${versions.min} to ${versions.max}"
      case None => s"it says: ${cause.getMessage}"
    }
    val causes = there match {
      case Some(Seq()) =>
        s"The query wrote to another address before (${Settings.Address}), or the namespace was dropped (ckpt drop)."
      case Some(versions) if version < versions.min =>
        s"Versions older than the last $retained (spark.sql.streaming.minBatchesToRetain) are forgotten; or the " +
          "checkpoint is an old copy."
      case Some(versions) if version > versions.max =>
        "The backend is older than the checkpoint: it was restored from a backup, or another query goes on from a copy " +
          s"of this checkpoint at another address (${Settings.Address})."
      case _ =>
        "Another query goes on from a copy of this checkpoint, or the backend was restored from a backup."
    }
    new MissingStateError(s"$address answered, so this is no outage, but it does not hold $wanted: $found. $causes " +
      "Start the query with the address that it was written to, or restore the backend; `ckpt versions ADDRESS " +
      s"$namespace` lists what is there. If the state is gone for good, begin with a new checkpoint location, which " +
      "starts with empty state", cause)
  }
}
