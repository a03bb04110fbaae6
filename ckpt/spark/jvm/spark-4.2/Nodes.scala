package ckpt.spark.plan

import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

/** Spark's node with the fields of another, which Spark 4.2 names; there is a file of the same name for Spark 4.3. */
abstract class SparkTransformWithStateExec(node: TransformWithStateExec)
    extends TransformWithStateExec(
      node.keyDeserializer,
      node.valueDeserializer,
      node.groupingAttributes,
      node.dataAttributes,
      node.statefulProcessor,
      node.timeMode,
      node.outputMode,
      node.keyEncoder,
      node.outputObjAttr,
      node.stateInfo,
      node.batchTimestampMs,
      node.prevBatchTimestampMs,
      node.eventTimeWatermarkForLateEvents,
      node.eventTimeWatermarkForEviction,
      node.child,
      node.isStreaming,
      node.hasInitialState,
      node.initialStateGroupingAttrs,
      node.initialStateDataAttrs,
      node.initialStateDeserializer,
      node.initialState)

/** The same for the node of Python's processors. */
abstract class SparkTransformWithStateInPySparkExec(node: TransformWithStateInPySparkExec)
    extends TransformWithStateInPySparkExec(
      node.functionExpr,
      node.groupingAttributes,
      node.output,
      node.outputMode,
      node.timeMode,
      node.stateInfo,
      node.batchTimestampMs,
      node.prevBatchTimestampMs,
      node.eventTimeWatermarkForLateEvents,
      node.eventTimeWatermarkForEviction,
      node.userFacingDataType,
      node.child,
      node.isStreaming,
      node.hasInitialState,
      node.initialState,
      node.initialStateGroupingAttrs,
      node.initialStateSchema)
