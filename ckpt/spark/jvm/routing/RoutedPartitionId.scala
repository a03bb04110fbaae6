package ckpt.spark.routing

import org.apache.spark.sql.catalyst.expressions.{Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.types.{DataType, IntegerType}

/** The partition that a table gives to the keys with a hash; it takes the place of Spark's `pmod(hash, partitions)`. */
final case class RoutedPartitionId(child: Expression, table: RoutingTable) extends UnaryExpression {
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def nullIntolerant: Boolean = true
  override def prettyName: String = "routed"

  override protected def nullSafeEval(hash: Any): Any = table.place(hash.asInstanceOf[Int])

  override protected def doGenCode(ctx: CodegenContext, code: ExprCode): ExprCode = {
    val routes = ctx.addReferenceObj("routes", table)
    defineCodeGen(ctx, code, hash => s"$routes.place($hash)")
  }

  override protected def withNewChildInternal(child: Expression): RoutedPartitionId = copy(child = child)
}
