package ckpt.spark

import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/**
 * Lets `transformWithState` run on this provider; set as `spark.sql.extensions`. Nothing else of a session changes, but
 * where tasks will run in this process, their sidecar starts now, and not when the first of them waits for it.
 *
 * Spark's operator asks for Spark's RocksDB by name when it executes. Of where a plan can be changed, only the rules
 * for columns come late enough: what precedes them replaces the node by copies of Spark's own class.
 */
class CkptExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectColumnar(_ => new ColumnarRule {
      override def preColumnarTransitions: Rule[SparkPlan] = AcceptProvider
    })
    EarlySidecar.prepare()
  }
}

/** Half a second of a restart: a Python that starts while the session does, and not after it. */
private object EarlySidecar extends Logging {
  private val TasksRunHere = "local(\\[.*\\])?".r

  def prepare(): Unit =
    for (env <- Option(SparkEnv.get)) {
      val conf = env.conf
      val isOurs = conf.getOption(SQLConf.STATE_STORE_PROVIDER_CLASS.key).contains(classOf[CkptStateStoreProvider].getName)
      if (isOurs && TasksRunHere.matches(conf.get("spark.master", ""))) {
        // What is wrong with the settings is said by the query that uses them.
        try Sidecar.of(Settings.sidecar(StateStoreConf.empty)).prepare()
        catch { case NonFatal(e) => logDebug("no sidecar before it is needed", e) }
      }
    }
}

/** Puts in the place of Spark's operators those that accept this provider, where this provider is the one in use. */
object AcceptProvider extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (conf.stateStoreProviderClass != classOf[CkptStateStoreProvider].getName) {
      KeptElsewhere.look(plan, conf)
      plan
    } else plan.transformUp {
      case node: TransformWithStateExec => new CkptTransformWithStateExec(node)
      case node: TransformWithStateInPySparkExec => new CkptTransformWithStateInPySparkExec(node)
    }
}

/** Spark's operator for processors in Scala and Java, on this provider. */
final class CkptTransformWithStateExec(node: TransformWithStateExec) extends LineTransformWithStateExec(node) {
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  // Equal nodes count as unchanged, and Spark, which compares in either direction, would keep its own.
  override def canEqual(other: Any): Boolean = other.isInstanceOf[CkptTransformWithStateExec]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  // Copies that Spark makes of a node are of Spark's class.
  override protected def withNewChildrenInternal(left: SparkPlan, right: SparkPlan): TransformWithStateExec =
    new CkptTransformWithStateExec(super.withNewChildrenInternal(left, right))

  override def makeCopy(args: Array[AnyRef]): SparkPlan =
    new CkptTransformWithStateExec(copy().makeCopy(args).asInstanceOf[TransformWithStateExec])
}

/** Spark's operator for processors in Python, on rows or on pandas, on this provider. */
final class CkptTransformWithStateInPySparkExec(node: TransformWithStateInPySparkExec)
    extends LineTransformWithStateInPySparkExec(node) {
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  override def canEqual(other: Any): Boolean = other.isInstanceOf[CkptTransformWithStateInPySparkExec]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override protected def withNewChildrenInternal(left: SparkPlan, right: SparkPlan): TransformWithStateInPySparkExec =
    new CkptTransformWithStateInPySparkExec(super.withNewChildrenInternal(left, right))

  override def makeCopy(args: Array[AnyRef]): SparkPlan =
    new CkptTransformWithStateInPySparkExec(copy().makeCopy(args).asInstanceOf[TransformWithStateInPySparkExec])
}
