package ckpt.spark

import org.apache.spark.sql.execution.streaming.state._

/** What a store reports in `StreamingQueryProgress`, beside its keys and its memory. */
object Metrics {
  val LoadTime = StateStoreCustomTimingMetric("ckptLoadMs", "ckpt: time to open the state")
  val CommitTime = StateStoreCustomTimingMetric("ckptCommitMs", "ckpt: time to make changes durable")
  val CommitBytes = StateStoreCustomSizeMetric("ckptCommitBytes", "ckpt: bytes of changes made durable")
  val Commits = StateStoreCustomSumMetric("ckptCommits", "ckpt: commits")
  val DurableWrites = StateStoreCustomSumMetric("ckptDurableWrites", "ckpt: times that the backend made something durable")
  val RoundTrips = StateStoreCustomSumMetric("ckptRoundTrips", "ckpt: requests to the sidecar")
  val Restarts = StateStoreCustomSumMetric("ckptSidecarRestarts", "ckpt: times that the sidecar was lost and replaced")
  val Puts = StateStoreCustomSumMetric("ckptPuts", "ckpt: keys put")
  val Deletes = StateStoreCustomSumMetric("ckptDeletes", "ckpt: keys deleted")
  val FromMemory = StateStoreCustomSumMetric("ckptOpenedFromMemory", "ckpt: stores opened without reading the backend")
  val FromBackend = StateStoreCustomSumMetric("ckptOpenedFromBackend", "ckpt: stores read from the backend")
  val InternalKeys = StateStoreCustomSumMetric("ckptInternalKeys", "ckpt: keys of Spark's own column families")
  val SpilledKeys = StateStoreCustomSumMetric("ckptSpilledKeys", "ckpt: keys on local disk and not in memory")
  val SpilledBytes = StateStoreCustomSizeMetric("ckptSpilledBytes", "ckpt: what they would take in memory")
  val DiskReads = StateStoreCustomSumMetric("ckptDiskReads", "ckpt: rows read from local disk")
  val FetchedKeys = StateStoreCustomSumMetric("ckptFetchedKeys", "ckpt: keys fetched one by one from the backend")
  // Named as by Spark's default provider, and so known to those who watch for it.
  val ForcedSnapshots =
    StateStoreCustomSumMetric("forceSnapshotCount", "ckpt: commits that Spark asked to be snapshots, as all of them are")

  val all: Seq[StateStoreCustomMetric] =
    Seq(LoadTime, CommitTime, CommitBytes, Commits, DurableWrites, RoundTrips, Restarts, Puts, Deletes, FromMemory,
      FromBackend, InternalKeys, SpilledKeys, SpilledBytes, DiskReads, FetchedKeys, ForcedSnapshots)
}
