package ckpt.spark.routing

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** Stands above an exchange, which it leaves as it is: tells the stores of a task by which table their rows come. */
final case class RoutedExec(child: SparkPlan, routing: Routing, batch: Long) extends UnaryExecNode {
  override def nodeName: String = "CkptRouted"
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val told = routing
    child.execute().mapPartitions({ rows =>
      TaskRouting.register(told)
      rows
    }, preservesPartitioning = true)
  }

  override def simpleString(maxFields: Int): String = s"$nodeName ${routing.table}, batch $batch"

  override protected def withNewChildInternal(child: SparkPlan): RoutedExec = copy(child = child)
}
