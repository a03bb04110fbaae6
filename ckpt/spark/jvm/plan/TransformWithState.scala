package ckpt.spark.plan

import ckpt.spark.CkptStateStoreProvider
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

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
