package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.sql.execution.datasources.v2.state.{StateDataSourceChangeDataReaderSuite, StateDataSourceReadSuite}
import org.apache.spark.sql.internal.SQLConf

import ckpt.spark.CkptStateStoreProvider

/** What Spark's `statestore` reader is asked for, on every provider and on those that replay from any version. */
class CkptStateDataSourceReadSuite extends StateDataSourceReadSuite with OnCkpt {
  override protected def newStateStoreProvider(): CkptStateStoreProvider = new CkptStateStoreProvider

  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_PROVIDER_CLASS.key, classOf[CkptStateStoreProvider].getName)
  }

  test("provider.replayReadStateFromSnapshot(snapshotVersion, endVersion)")(testGetReadStoreWithStartVersion())

  test("option snapshotPartitionId")(testSnapshotPartitionId())

  test("snapshotStartBatchId on join state v3")(testSnapshotOnJoinStateV3())

  test("snapshotStartBatchId on join state v4")(testSnapshotOnJoinStateV4())
}

class CkptStateDataSourceReadSuiteWithFormat2 extends CkptStateDataSourceReadSuite {
  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, 2)
  }
}

/** The change feed of the `statestore` reader. */
class CkptStateDataSourceChangeDataReadSuite extends StateDataSourceChangeDataReaderSuite with OnCkpt {
  override protected def newStateStoreProvider(): CkptStateStoreProvider = new CkptStateStoreProvider
}

class CkptStateDataSourceChangeDataReadSuiteWithFormat2 extends CkptStateDataSourceChangeDataReadSuite {
  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, 2)
  }
}
