package ckpt.spark.state

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec
import org.apache.spark.sql.types.StructType

/**
 * What an open store asks of the provider that opened it. The provider knows the store's class, and the store knows
 * this trait only.
 */
private[spark] trait StateOwner {

  /** How the rows of a family are encoded; a family that was registered before keeps its encoding. */
  private[spark] def register(
      name: String,
      keySchema: StructType,
      valueSchema: StructType,
      spec: KeyStateEncoderSpec,
      multipleValues: Boolean,
      internal: Boolean): Encoding

  /** Refuses rows that are not of the schema: state of another query, or of a query that was changed. */
  private[spark] def validate(key: UnsafeRow, value: UnsafeRow): Unit

  /** Makes the open transaction durable as the version after `from`; on return the backend has it. */
  private[spark] def commit(from: CommitRef, onNothing: Boolean, commitId: String): DurableCommit

  /** How many keys were fetched one by one from the backend since the last call. */
  private[spark] def takeFetched(): Long

  /** How many rows came from other partitions when the batch began. */
  private[spark] def movedRows: Long

  /** Takes the state back from the store, which does not use it any more. Another task may open it then. */
  private[spark] def endOfUse(): Unit
}

/** The rows of one commit, before the transaction of a batch changes them. */
final case class CommittedState(commit: CommitRef, rows: StateMap, fromMemory: Boolean)

/** How a store was opened; `onNothing` if Spark asked for an empty one whatever there was before. */
final case class Opened(fromMemory: Boolean, onNothing: Boolean, nanos: Long)

/** A commit that is durable, and what it took since the store was opened. */
final case class DurableCommit(to: CommitRef, rows: ChangedRows, durableWrites: Long, roundTrips: Long)
