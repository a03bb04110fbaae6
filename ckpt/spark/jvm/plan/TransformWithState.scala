package ckpt.spark.plan

import ckpt.spark.CkptStateStoreProvider
import ckpt.spark.routing.RouteState
import ckpt.spark.wire.Settings
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/** Replaces Spark's operators by those that accept this provider, in queries that use it. */
object AcceptProvider extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (conf.stateStoreProviderClass != classOf[CkptStateStoreProvider].getName) {
      OtherProviderQueries.check(plan, conf)
      plan
    } else {
      val accepting = plan.transformUp {
        case node: TransformWithStateExec => new CkptTransformWithStateExec(node)
        case node: TransformWithStateInPySparkExec => new CkptTransformWithStateInPySparkExec(node)
      }
      if (Settings.routes(StateStoreConf(conf))) RouteState(accepting, conf) else accepting
    }
}

/** Spark's operator for processors in Scala and Java, on this provider. */
final class CkptTransformWithStateExec(node: TransformWithStateExec) extends SparkTransformWithStateExec(node) {
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
    extends SparkTransformWithStateInPySparkExec(node) {
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  override def canEqual(other: Any): Boolean = other.isInstanceOf[CkptTransformWithStateInPySparkExec]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override protected def withNewChildrenInternal(left: SparkPlan, right: SparkPlan): TransformWithStateInPySparkExec =
    new CkptTransformWithStateInPySparkExec(super.withNewChildrenInternal(left, right))

  override def makeCopy(args: Array[AnyRef]): SparkPlan =
    new CkptTransformWithStateInPySparkExec(copy().makeCopy(args).asInstanceOf[TransformWithStateInPySparkExec])
}
