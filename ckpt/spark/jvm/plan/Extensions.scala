package ckpt.spark

import scala.util.control.NonFatal

import ckpt.spark.plan.AcceptProvider
import ckpt.spark.wire.{Settings, Sidecar}
import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/**
 * Lets `transformWithState` run on this provider; set as `spark.sql.extensions`. Nothing else of a session changes, but
 * where tasks will run in this process, their sidecar starts now, and not when the first of them waits for it.
 *
 * Spark's operator asks for Spark's RocksDB by name when it executes. Only columnar rules can replace it: all earlier
 * rules run before Spark copies the node, and its copies are of Spark's own class.
 *
 * Settings name this class, so it is in the package `ckpt.spark` and not in that of its folder.
 */
class CkptExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectColumnar(_ => new ColumnarRule {
      override def preColumnarTransitions: Rule[SparkPlan] = AcceptProvider
    })
    EarlySidecar.prepare()
  }
}

/** Starts the sidecar while the session starts, which saves a restart half a second. */
private object EarlySidecar extends Logging {
  private val TasksRunHere = "local(\\[.*\\])?".r

  def prepare(): Unit =
    for (env <- Option(SparkEnv.get)) {
      val conf = env.conf
      val isOurs = conf.getOption(SQLConf.STATE_STORE_PROVIDER_CLASS.key).contains(classOf[CkptStateStoreProvider].getName)
      if (isOurs && TasksRunHere.matches(conf.get("spark.master", ""))) {
        // Wrong settings are reported by the query that uses them.
        try Sidecar.of(Settings.sidecar(StateStoreConf.empty)).prepare()
        catch { case NonFatal(e) => logDebug("no sidecar before it is needed", e) }
      }
    }
}
