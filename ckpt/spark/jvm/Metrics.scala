package ckpt.spark

import org.apache.spark.sql.execution.streaming.state._

/** What a store reports in `StreamingQueryProgress`, beside its keys and its memory. */
object Metrics {
  val LoadTime = StateStoreCustomTimingMetric("ckptLoadMs", "ckpt: time to open the state")
  val CommitTime = StateStoreCustomTimingMetric("ckptCommitMs", "ckpt: time to make changes durable")
  val CommitBytes = StateStoreCustomSizeMetric("ckptCommitBytes", "ckpt: bytes of changes made durable")
  val Puts = StateStoreCustomSumMetric("ckptPuts", "ckpt: keys put")
  val Deletes = StateStoreCustomSumMetric("ckptDeletes", "ckpt: keys deleted")
  val FromMemory = StateStoreCustomSumMetric("ckptOpenedFromMemory", "ckpt: stores opened without reading the backend")
  val FromBackend = StateStoreCustomSumMetric("ckptOpenedFromBackend", "ckpt: stores read from the backend")
  val InternalKeys = StateStoreCustomSumMetric("ckptInternalKeys", "ckpt: keys of Spark's own column families")

  val all: Seq[StateStoreCustomMetric] =
    Seq(LoadTime, CommitTime, CommitBytes, Puts, Deletes, FromMemory, FromBackend, InternalKeys)
}
