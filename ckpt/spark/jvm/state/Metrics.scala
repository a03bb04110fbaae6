package ckpt.spark.state

import org.apache.spark.sql.execution.streaming.state._

/**
 * What a store reports in `StreamingQueryProgress`, beside its keys and its memory. Spark carries each of these to every
 * task and back, so what can be computed from others is not here.
 */
object Metrics {
  val LoadTime = StateStoreCustomTimingMetric("ckptLoadMs", "ckpt: time to open the state")
  val CommitTime = StateStoreCustomTimingMetric("ckptCommitMs", "ckpt: time to make changes durable")
  val CommitBytes = StateStoreCustomSizeMetric("ckptCommitBytes", "ckpt: bytes of changes made durable")
  val Commits = StateStoreCustomSumMetric("ckptCommits", "ckpt: commits")
  val DurableWrites = StateStoreCustomSumMetric("ckptDurableWrites", "ckpt: times that the backend made something durable")
  val RoundTrips = StateStoreCustomSumMetric("ckptRoundTrips", "ckpt: requests to the sidecar")
  val FromMemory = StateStoreCustomSumMetric("ckptOpenedFromMemory", "ckpt: stores opened without reading the backend")
  val SpilledKeys = StateStoreCustomSumMetric("ckptSpilledKeys", "ckpt: keys on local disk and not in memory")
  val FetchedKeys = StateStoreCustomSumMetric("ckptFetchedKeys", "ckpt: keys fetched one by one from the backend")
  val MovedRows = StateStoreCustomSumMetric("ckptMovedRows", "ckpt: rows that came from other partitions by a new routing table")
  // The same name as in Spark's default provider, which monitoring may know.
  val ForcedSnapshots =
    StateStoreCustomSumMetric("forceSnapshotCount", "ckpt: commits that Spark asked to be snapshots, as all of them are")

  val all: Seq[StateStoreCustomMetric] =
    Seq(LoadTime, CommitTime, CommitBytes, Commits, DurableWrites, RoundTrips, FromMemory, SpilledKeys, FetchedKeys,
      MovedRows, ForcedSnapshots)
}
