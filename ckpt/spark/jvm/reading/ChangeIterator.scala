package org.apache.spark.ckpt

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.util.NextIterator

/**
 * What Spark takes as a change feed: kind of change, key, value (null if deleted) and batch. Its base class is closed to
 * other packages than Spark's, so this file is in one of them, and nothing else is.
 */
abstract class ChangeIterator extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)]
