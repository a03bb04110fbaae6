package ckpt.spark.routing

import ckpt.spark.state.{Description, Encoding, Lists}
import org.apache.spark.sql.catalyst.expressions.{BoundReference, CollationAwareMurmur3Hash, UnsafeProjection}
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorsUtils, StatePartitionKeyExtractorFactory}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate._
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.timers.TimerStateUtils
import org.apache.spark.sql.execution.streaming.state.{PrefixKeyScanStateEncoderSpec, StatePartitionKeyExtractor}

/** The hash by which Spark placed the rows of one family: that of those columns of their keys that the shuffle used. */
final class RowHashes(encoding: Encoding, extractor: StatePartitionKeyExtractor) {
  private val hash = {
    val columns = extractor.partitionKeySchema.fields.toSeq.zipWithIndex.map { case (field, at) =>
      BoundReference(at, field.dataType, field.nullable)
    }
    UnsafeProjection.create(Seq(new CollationAwareMurmur3Hash(columns)))
  }

  /** Of the row with this key, which is the key that an operator knows, or that of a chunk of its list. */
  def of(stored: Array[Byte]): Int = {
    val key = if (encoding.multipleValues) Lists.keyOf(stored) else stored
    hash(extractor.partitionKey(encoding.decodeKey(key))).getInt(0)
  }
}

/**
 * Which columns of a state row's key say where the row belongs. Spark knows that by operator and family, for its own
 * offline repartitioning; of `transformWithState` it asks what kind of variable a family is for.
 *
 * @param describe what a family of the store holds
 */
final class PartitionKeys(operator: RoutedOperator, storeName: String, describe: String => Option[Description]) {

  def of(family: String, encoding: Encoding): RowHashes = {
    val variable =
      if (StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(operator.name)) Some(variableOf(family)) else None
    new RowHashes(encoding, StatePartitionKeyExtractorFactory.create(
      operator.name, encoding.description.keySchema, storeName, family, operator.formatVersion, variable))
  }

  /** Families for expiry are named after the variable that they belong to, and only maps are scanned by a prefix. */
  private def variableOf(family: String): TransformWithStateVariableInfo =
    if (TimerStateUtils.isTimerCFName(family)) {
      TransformWithStateVariableInfo(family, StateVariableType.TimerState, ttlEnabled = false)
    } else {
      val name = StateStoreColumnFamilySchemaUtils.getBaseStateName(family)
      val isMap = describe(name).exists(_.keyEncoder.isInstanceOf[PrefixKeyScanStateEncoderSpec])
      val kind = if (isMap) StateVariableType.MapState else StateVariableType.ValueState
      TransformWithStateVariableInfo(name, kind, ttlEnabled = true)
    }
}
