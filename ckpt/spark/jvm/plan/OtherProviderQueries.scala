package ckpt.spark.plan

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import ckpt.spark.Moving
import ckpt.spark.wire.Settings
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StatefulOperatorStateInfo}
import org.apache.spark.sql.internal.SQLConf

/**
 * Queries that keep their state with another provider although their session has an address of ckpt. They go on as
 * before, and each run of a query is warned of once.
 *
 * A checkpoint records the provider that it was begun with, and Spark goes on with that one whatever the session says.
 * Without a warning a user who has switched to ckpt would not notice that nothing has changed.
 */
object OtherProviderQueries extends Logging {
  private val said = ConcurrentHashMap.newKeySet[UUID]()

  def check(plan: SparkPlan, conf: SQLConf): Unit =
    if (conf.contains(Settings.Address) || conf.contains(Settings.Sidecar)) {
      val kept = plan.collectFirst { case operator: StatefulOperator if operator.stateInfo.isDefined => operator.stateInfo.get }
      for (info <- kept) {
        keepFormat(info, conf)
        if (said.add(info.queryRunId)) warn(info, conf)
      }
    }

  /**
   * Sessions of ours have checkpoint format 2. Spark's default provider has no such format, and a checkpoint of its
   * RocksDB that was begun without ids cannot get them. Spark 4.3 sees that by itself, Spark 4.2 would end the query.
   * It looks at this configuration, which is the query's own, after the plan is made.
   */
  private def keepFormat(info: StatefulOperatorStateInfo, conf: SQLConf): Unit = {
    val hasNoIds = conf.stateStoreProviderClass == Moving.DefaultProvider ||
      (info.storeVersion > 0 && info.stateStoreCkptIds.isEmpty)
    if (hasNoIds && conf.getConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION) > 1) {
      conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, 1)
    }
  }

  private def warn(info: StatefulOperatorStateInfo, conf: SQLConf): Unit = {
    val checkpoint = info.checkpointLocation.stripSuffix("/state")
    logWarning(s"the query with the checkpoint $checkpoint keeps its state in ${conf.stateStoreProviderClass}, not in " +
      "ckpt: its checkpoint was begun with that provider, or the session names it. To move the state, stop the " +
      s"query and run: ckpt spark import $checkpoint ADDRESS")
  }
}
