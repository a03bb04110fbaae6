package ckpt.spark.routing

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.types.StringType

/** Stands below an exchange, whose rows it leaves as they are, and counts them by their keys. */
final case class CountedExec(child: SparkPlan, keys: Seq[Expression], table: RoutingTable, counts: KeyCounts)
    extends UnaryExecNode {
  override def nodeName: String = "CkptCounted"
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val (expressions, columns, places, counted, zone) =
      (keys, child.output, table, counts, conf.sessionLocalTimeZone)
    child.execute().mapPartitions({ rows =>
      val hash = UnsafeProjection.create(Seq(new CollationAwareMurmur3Hash(expressions)), columns)
      lazy val text = UnsafeProjection.create(expressions.map(key => Cast(key, StringType, Some(zone))), columns)
      rows.map { row =>
        val hashed = hash(row).getInt(0)
        counted.count(hashed, places.place(hashed), CountedExec.name(text(row)))
        row
      }
    }, preservesPartitioning = true)
  }

  override def simpleString(maxFields: Int): String = nodeName

  override protected def withNewChildInternal(child: SparkPlan): CountedExec = copy(child = child)
}

object CountedExec {
  private val LongestName = 200

  /** What people call a key: the texts of its columns. */
  private def name(columns: UnsafeRow): String =
    (0 until columns.numFields)
      .map(at => if (columns.isNullAt(at)) "null" else columns.getUTF8String(at).toString)
      .mkString(", ").take(LongestName)
}
