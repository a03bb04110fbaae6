package ckpt.spark.routing

import java.util.Arrays

import ckpt.spark.state._
import ckpt.spark.wire.Settings
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Where the keys of one store belong. Knows the table of the open batch, and has rows moved if the state was committed
 * under another one.
 *
 * @param reader reads the commits of another namespace
 * @param onTheTip the commit of a namespace's version that its newest commit builds on
 * @param encode how the rows of a family are encoded
 */
final class Placement(
    id: StateStoreId,
    namespace: String,
    hadoopConf: Configuration,
    reader: String => CommitReader,
    onTheTip: (String, Long) => CommitRef,
    encode: (String, Description) => Encoding) {

  private var stamp: Array[Byte] = _
  private var done = Migrated(0, 0)

  /** The table that the open batch is committed under; null if its keys are where Spark's hash places them. */
  def layout: Array[Byte] = stamp

  /** What moved when the open batch began. */
  def migrated: Migrated = done

  /** On return the rows of the open transaction are those of the keys that the table of this batch places here. */
  def begin(committed: CommittedState): Unit = {
    val before = committed.rows.layout
    done = Migrated(0, 0)
    TaskRouting.of(id.operatorId) match {
      case Some((routing, operator)) =>
        stamp = routing.table.stamp
        // Nearly every batch has the table of the one before, whose entries need not be read for that.
        if (committed.commit.version > 0 && !Arrays.equals(before, stamp)) {
          val from =
            if (before == null) RoutingTable.hashed(routing.partitions) else RoutingTable.of(before, routing.partitions)
          done = migration(committed, from, routing.table, operator).run()
        }
      case None =>
        if (before != null && isInBatch) throw new SparkException(
          s"the keys of $namespace are placed by a routing table, and this session places them by Spark's hash: it would " +
            s"not find their state. Set ${Settings.Rebalance} to apply, as it was when the query ran before")
        stamp = before
    }
  }

  private def migration(
      committed: CommittedState,
      from: RoutingTable,
      to: RoutingTable,
      operator: RoutedOperator): Migration =
    new Migration(committed.rows, namespace, id.partitionId, from, to, new PartitionKeys(operator, id.storeName, _), encode,
      sibling(_, committed.commit.version, operator))

  private def sibling(partition: Int, version: Long, operator: RoutedOperator): Sibling = {
    val there = Namespace.of(id.copy(partitionId = partition), hadoopConf).namespace
    val at = operator.commitIdOf(partition, id.storeName) match {
      case None => onTheTip(there, version)
      case known => CommitRef(version, known)
    }
    Sibling(there, reader(there), at)
  }

  /** Outside of a batch state is only read, which is right wherever its keys are. */
  private def isInBatch: Boolean =
    Option(TaskContext.get()).exists(_.getLocalProperty(Namespace.BatchIdKey) != null)
}
