package org.apache.spark.sql.execution.streaming.state

import java.util.UUID

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.scalatest.BeforeAndAfter

import org.apache.spark.SparkConf
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.test.SharedSparkSession
import org.apache.spark.sql.types.StructType

import ckpt.spark.CkptStateStoreProvider

/** What Spark asks of every provider. */
class CkptStateStoreSuite
    extends StateStoreSuiteBase[CkptStateStoreProvider]
    with SharedSparkSession
    with BeforeAndAfter
    with OnCkpt {
  import StateStoreTestsHelper._

  before {
    StateStore.stop()
    spark.streams.stateStoreCoordinator // is made when it is first asked for, and tests expect it
  }

  after(StateStore.stop())

  override def newStoreProvider(): CkptStateStoreProvider = made()
  override def newStoreProvider(storeId: StateStoreId): CkptStateStoreProvider = made(storeId)
  override def newStoreProvider(storeId: StateStoreId, useColumnFamilies: Boolean): CkptStateStoreProvider =
    made(storeId, useColumnFamilies = useColumnFamilies)
  override def newStoreProvider(storeId: StateStoreId, conf: Configuration): CkptStateStoreProvider =
    made(storeId, hadoopConf = conf)
  override def newStoreProvider(minDeltasForSnapshot: Int, numOfVersToRetainInMemory: Int): CkptStateStoreProvider =
    made(conf = getDefaultSQLConf(minDeltasForSnapshot, numOfVersToRetainInMemory))
  override def newStoreProvider(
      keySchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean): CkptStateStoreProvider =
    made(keySchema = keySchema, spec = keyStateEncoderSpec, useColumnFamilies = useColumnFamilies)
  override def newStoreProvider(useColumnFamilies: Boolean): CkptStateStoreProvider =
    made(useColumnFamilies = useColumnFamilies)
  override def newStoreProviderWithClonedConf(storeId: StateStoreId): CkptStateStoreProvider =
    made(storeId, conf = cloneSQLConf())
  override def newStoreProviderNoInit(): CkptStateStoreProvider = new CkptStateStoreProvider

  override def getLatestData(provider: CkptStateStoreProvider, useColumnFamilies: Boolean): Set[((String, Int), Int)] =
    read(provider, _.latestVersion, useColumnFamilies)

  override def getData(
      provider: CkptStateStoreProvider,
      version: Int,
      useColumnFamilies: Boolean): Set[((String, Int), Int)] = read(provider, _ => version, useColumnFamilies)

  override def getDefaultSQLConf(minDeltasForSnapshot: Int, numOfVersToRetainInMemory: Int): SQLConf = {
    val conf = cloneSQLConf()
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, minDeltasForSnapshot)
    conf.setConf(SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY, numOfVersToRetainInMemory)
    conf
  }

  override def getDefaultStoreConf(): StateStoreConf = new StateStoreConf(SQLConf.get)

  override def testQuietly(name: String)(f: => Unit): Unit = super[StateStoreSuiteBase].testQuietly(name)(f)

  private def read(
      provider: CkptStateStoreProvider,
      version: CkptStateStoreProvider => Long,
      useColumnFamilies: Boolean): Set[((String, Int), Int)] =
    tryWithProviderResource(newStoreProvider(provider.stateStoreId, useColumnFamilies)) { another =>
      val store = another.getReadStore(version(another))
      try rowPairsToDataSet(store.iterator())
      finally store.release()
    }

  private def made(
      storeId: StateStoreId = StateStoreId(newDir(), Random.nextInt(), 0),
      keySchema: StructType = keySchema,
      spec: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(keySchema),
      useColumnFamilies: Boolean = false,
      conf: SQLConf = SQLConf.get,
      hadoopConf: Configuration = new Configuration): CkptStateStoreProvider = {
    hadoopConf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    val provider = new CkptStateStoreProvider
    provider.init(
      storeId, keySchema, valueSchema, spec, useColumnFamilies, new StateStoreConf(conf), hadoopConf,
      useMultipleValuesPerKey = false, Some(new TestStateSchemaProvider))
    provider
  }
}

/** The same with a commit id for every attempt. */
class CkptStateStoreSuiteWithFormat2 extends CkptStateStoreSuite {
  override def sparkConf: SparkConf = super.sparkConf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, "2")
}
