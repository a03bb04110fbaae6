package ckpt.spark.state

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** Spark's provider with what only Spark 4.3 asks of it; there is a file of the same name for Spark 4.2. */
trait SparkProvider extends StateStoreProvider {

  /** Forgets what no retained version needs. */
  protected def forgetOldVersions(): Unit

  // The periodic task calls only the two halves of it; this one is left for a store that is unloaded.
  override def doMaintenance(): Unit = forgetOldVersions()

  override def doCleanupMaintenance(): Unit = forgetOldVersions()
}

/** Spark's store with what only Spark 4.3 asks of it. */
trait SparkStore extends StateStore {

  override def registerColFamily(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit =
    createColFamilyIfAbsent(
      colFamilyName, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, isInternal)
}
