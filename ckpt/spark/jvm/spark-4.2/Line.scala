package ckpt.spark.state

import org.apache.spark.sql.execution.streaming.state._

/** What Spark 4.2 asks of a provider in its own way; Spark 4.3 has a file of the same name. */
trait LineProvider extends StateStoreProvider {

  /** Forgets what no retained version needs. */
  protected def forgetOldVersions(): Unit

  override def doMaintenance(): Unit = forgetOldVersions()
}

/** What Spark 4.2 asks of a store in its own way: nothing. */
trait LineStore extends StateStore
