package ckpt.spark.moving

import java.util.UUID

import ckpt.spark.state.CkptStateStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._

/** How many rows a store has, and a sum over them: the same rows in any order have the same fingerprint. */
final case class RowsFingerprint(rows: Long, sum: Long)

/**
 * Reads and writes one partition of a store through providers of its own, which no query knows of. Only the interface
 * that Spark itself uses is used, so what is written is what the provider would have written.
 */
final class StateCopy(store: MovedStore, partition: Int, hadoopConf: Configuration) {

  /** Shows every row of a version to `use`, which must not keep it. */
  def read(conf: StateStoreConf, root: String, version: Long, id: Option[String])(
      use: (MovedFamily, UnsafeRow, UnsafeRow) => Unit): RowsFingerprint =
    withProvider(conf, root) { provider =>
      // Families can be made known to a store for reading only from Spark 4.3 on; this one is never committed.
      if (store.hasFamilies) {
        val opened = provider.getStore(version, id, forceSnapshotOnCommit = false, loadEmpty = false)
        try {
          val unknown = opened.allColumnFamilyNames -- store.families.map(_.name) - StateStore.DEFAULT_COL_FAMILY_NAME
          if (unknown.nonEmpty) {
            throw new IllegalStateException(s"no schema has its families ${unknown.toSeq.sorted.mkString(", ")}")
          }
          makeFamilies(opened)
          requireHashed(opened)
          scan(opened, use)
        } finally opened.abort()
      } else {
        val opened = provider.getReadStore(version, id)
        try {
          requireHashed(opened)
          scan(opened, use)
        } finally opened.release()
      }
    }

  /** Other providers look for a key where Spark's hash places it. */
  private def requireHashed(opened: ReadStateStore): Unit = opened match {
    case ours: CkptStateStore if ours.isRouted => throw new IllegalStateException(
      "its keys are placed by a routing table, which only ckpt knows; place them by Spark's hash first: " +
        "ckpt rebalance home ADDRESS QUERY, let the query run one batch, and stop it")
    case _ =>
  }

  /** Makes what `fill` puts the whole of a version; under this commit id if there is one. The id that it has then. */
  def write(conf: StateStoreConf, root: String, version: Long, id: Option[String])(
      fill: ((MovedFamily, UnsafeRow, UnsafeRow) => Unit) => Unit): Option[String] =
    withProvider(conf, root)(writeEmpty(_, version, loadEmpty = true, id)(fill))

  /**
   * The same for Spark's default provider, which begins with nothing only at version 0: a snapshot of version 1 is made
   * in another folder, and is then the snapshot of the version that is wanted.
   */
  def writeSnapshot(conf: StateStoreConf, root: String, version: Long, scratch: String)(
      fill: ((MovedFamily, UnsafeRow, UnsafeRow) => Unit) => Unit): Unit = {
    val files = CheckpointFileManager.create(new Path(root), hadoopConf)
    val made = idIn(scratch).storeCheckpointLocation()
    files.delete(made) // of a copy that broke off
    withProvider(conf, scratch) { provider =>
      writeEmpty(provider, 1, loadEmpty = false, None)(fill)
      provider.doMaintenance()
    }
    val in = files.open(new Path(made, "1.snapshot"))
    try {
      val out = files.createAtomic(new Path(idIn(root).storeCheckpointLocation(), s"$version.snapshot"),
        overwriteIfPossible = true)
      try {
        in.transferTo(out)
        out.close()
      } catch {
        case e: Throwable =>
          out.cancel()
          throw e
      }
    } finally in.close()
    files.delete(made)
  }

  private def writeEmpty(provider: StateStoreProvider, version: Long, loadEmpty: Boolean, id: Option[String])(
      fill: ((MovedFamily, UnsafeRow, UnsafeRow) => Unit) => Unit): Option[String] = {
    val opened = provider.getStore(version - 1, None, forceSnapshotOnCommit = false, loadEmpty)
    try {
      makeFamilies(opened)
      fill { (family, key, value) =>
        if (family.multiple) opened.merge(key, value, family.name) else opened.put(key, value, family.name)
      }
      (opened, id) match {
        case (ours: CkptStateStore, Some(given)) => ours.commitAs(given)
        case _ => opened.commit()
      }
      opened.getStateStoreCheckpointInfo().stateStoreCkptId
    } finally if (!opened.hasCommitted) opened.abort()
  }

  private def makeFamilies(opened: StateStore): Unit = store.families.filterNot(_.isDefault).foreach { family =>
    opened.createColFamilyIfAbsent(
      family.name, family.schema.keySchema, family.schema.valueSchema, family.encoder, family.multiple, family.internal)
  }

  private def scan(opened: ReadStateStore, use: (MovedFamily, UnsafeRow, UnsafeRow) => Unit): RowsFingerprint = {
    var rows, sum = 0L
    store.families.foreach { family =>
      val pairs = if (family.multiple) opened.iteratorWithMultiValues(family.name) else opened.iterator(family.name)
      try pairs.foreach { pair =>
        use(family, pair.key, pair.value)
        rows += 1
        sum += family.fingerprint(pair.key, pair.value)
      } finally pairs.close()
    }
    RowsFingerprint(rows, sum)
  }

  private def withProvider[T](conf: StateStoreConf, root: String)(use: StateStoreProvider => T): T = {
    val default = store.defaultFamily
    // Spark notes the run in this configuration, and there are several at once.
    val provider = StateStoreProvider.createAndInit(
      StateStoreProviderId(idIn(root), UUID.randomUUID()), default.schema.keySchema, default.schema.valueSchema,
      default.encoder, store.hasFamilies, conf, new Configuration(hadoopConf), useMultipleValuesPerKey = false,
      store.schemas)
    try use(provider)
    finally provider.close()
  }

  private def idIn(root: String): StateStoreId = StateStoreId(root, store.operator, partition, store.name)
}
