package ckpt.spark.state

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** What Spark 4.3 asks of a provider in its own way; Spark 4.2 has a file of the same name. */
trait LineProvider extends StateStoreProvider {

  /** Forgets what no retained version needs. */
  protected def forgetOldVersions(): Unit

  // The periodic task calls only the two halves of it; this one is left for a store that is unloaded.
  override def doMaintenance(): Unit = forgetOldVersions()

  override def doCleanupMaintenance(): Unit = forgetOldVersions()
}

/** What Spark 4.3 asks of a store in its own way. */
trait LineStore extends StateStore {

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
