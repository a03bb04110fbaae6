package ckpt.spark.reading

import ckpt.spark.state.{CommitRef, CkptStateStore, Encoding, StateMap}
import ckpt.spark.wire.History
import org.apache.spark.SparkException
import org.apache.spark.ckpt.ChangeIterator
import org.apache.spark.sql.execution.streaming.state._

/** What Spark's `statestore` reader asks of a provider beyond versions: a replay from any of them, and what changed. */
trait Replay extends SupportsFineGrainedReplay {

  /** What the backend knows of this store's commits. */
  protected def history: History

  /** Whether Spark's commit ids say which commit is meant; otherwise the tip does. */
  protected def followsCommitIds: Boolean

  protected def encodingOf(family: String): Option[Encoding]

  protected def open(version: Long, commitId: Option[String], readOnly: Boolean, empty: Boolean): CkptStateStore

  /** All rows of a commit, in memory. */
  protected def read(commit: CommitRef): StateMap

  protected def missingVersion(wanted: CommitRef, cause: Throwable): SparkException

  protected def unexpectedVersion(version: Long): SparkException

  /** The newest version in the backend, of this executor or another; 0 if there is none. */
  def latestVersion: Long = history.newest.map(_.version).getOrElse(0L)

  /** Every version is whole, so it does not matter where a replay begins, as long as that version is there. */
  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore = {
    requireOrder(snapshotVersion, endVersion)
    chain(snapshotVersion, endVersion, endVersionStateStoreCkptId)
    open(endVersion, endVersionStateStoreCkptId, readOnly, empty = false)
  }

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore =
    replayStateFromSnapshot(
      snapshotVersion, endVersion, readOnly = true, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId)

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String]): ChangeIterator = {
    requireOrder(startVersion, endVersion)
    val family = colFamilyNameOpt.getOrElse(StateMap.Default)
    val encoding = encodingOf(family).getOrElse(
      throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily("readChangeFeed", family))
    val commits = chain(startVersion - 1, endVersion, endVersionStateStoreCkptId)
    new ChangeFeed(commits, read, family, encoding)
  }

  private def requireOrder(from: Long, to: Long): Unit = {
    if (from < 1) throw unexpectedVersion(from)
    if (to < from) throw unexpectedVersion(to)
  }

  /** The commits from one version to another, each built on the one before it. Version 0 is the empty state. */
  private def chain(from: Long, to: Long, commitId: Option[String]): Seq[CommitRef] = {
    val known = history
    val last = if (followsCommitIds) commitId else None
    val found = known.chain(last.getOrElse(known.tip))
    (from to to).map {
      case 0 => CommitRef(0, None)
      case version =>
        val broken = new NoSuchElementException(s"no commit of version $version leads to version $to")
        CommitRef(version, Some(found.getOrElse(version, throw missingVersion(CommitRef(version, last), broken)).id))
    }
  }
}
