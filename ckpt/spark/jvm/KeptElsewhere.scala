package ckpt.spark

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.internal.SQLConf

/**
 * Warns once for each run of a query whose state is not in ckpt, although its session has an address for it.
 *
 * A checkpoint notes the provider that it was begun with, and Spark goes on with that one whatever a session says: a
 * user who has switched would find everything working, and nothing faster.
 */
object KeptElsewhere extends Logging {
  private val said = ConcurrentHashMap.newKeySet[UUID]()

  def look(plan: SparkPlan, conf: SQLConf): Unit =
    if (conf.contains(Settings.Address) || conf.contains(Settings.Sidecar)) {
      val kept = plan.collectFirst { case operator: StatefulOperator if operator.stateInfo.isDefined => operator.stateInfo.get }
      for (info <- kept if said.add(info.queryRunId)) {
        val checkpoint = info.checkpointLocation.stripSuffix("/state")
        logWarning(s"the query with the checkpoint $checkpoint keeps its state in ${conf.stateStoreProviderClass}, not in " +
          "ckpt: its checkpoint was begun with that provider, or the session names it. To move the state, stop the " +
          s"query and run: ckpt spark import $checkpoint ADDRESS")
      }
    }
}
