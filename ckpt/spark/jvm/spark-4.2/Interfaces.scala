package ckpt.spark.state

import org.apache.spark.sql.execution.streaming.state._

/** Spark's provider with what only Spark 4.2 asks of it; there is a file of the same name for Spark 4.3. */
trait SparkProvider extends StateStoreProvider {

  /** Forgets what no retained version needs. */
  protected def forgetOldVersions(): Unit

  override def doMaintenance(): Unit = forgetOldVersions()
}

/** Spark's store; Spark 4.3 asks for more. */
trait SparkStore extends StateStore
