package ckpt.spark.reading

import java.io.ByteArrayOutputStream
import java.util.Arrays

import ckpt.spark.state.{CommitRef, Encoding, Family, KeyedValues, Lists, SingleValues, StateMap}
import org.apache.spark.ckpt.ChangeIterator
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType

/**
 * What each commit of a chain, but for the first, changed in one family, found by comparing it with the one before.
 * Applied to that one, the changes give the other. A key that a batch wrote several times is there once, with what it
 * became.
 *
 * Two versions are in memory at a time. Rows are views that the next call changes.
 */
final class ChangeFeed(commits: Seq[CommitRef], read: CommitRef => StateMap, family: String, encoding: Encoding)
    extends ChangeIterator {
  import ChangeFeed._

  private var newest = read(commits.head)
  private val records = commits.iterator.drop(1).flatMap { commit =>
    val older = newest
    newest = read(commit)
    // Spark calls the batch n that made version n + 1.
    compare(valuesOf(older), valuesOf(newest)).map(change => (change.kind, change.key, change.value, commit.version - 1))
  }

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    if (records.hasNext) records.next()
    else {
      finished = true
      null
    }

  override protected def close(): Unit = ()

  private def valuesOf(state: StateMap): KeyedValues = {
    val rows = state.find(family).getOrElse(new Family(0))
    if (encoding.multipleValues) new Lists(rows) else new SingleValues(rows)
  }

  private def compare(older: KeyedValues, newer: KeyedValues): Iterator[Change] = {
    val written = newer.all.flatMap { entry =>
      if (encoding.multipleValues) ofList(entry.key, whole(older, entry.key), whole(newer, entry.key))
      else ofValue(entry.key, older.first(entry.key), entry.value)
    }
    val deleted = older.all.filter(entry => newer.first(entry.key) == null).map(entry => delete(entry.key))
    written ++ deleted
  }

  private def ofValue(key: Array[Byte], was: Array[Byte], is: Array[Byte]): Iterator[Change] =
    if (Arrays.equals(was, is)) Iterator.empty
    else Iterator.single(Change(RecordType.PUT_RECORD, encoding.decodeKey(key), encoding.decodeValue(is)))

  /** A list that was only added to is so many merges; another is deleted and made anew. */
  private def ofList(key: Array[Byte], was: Array[Byte], is: Array[Byte]): Iterator[Change] = {
    val grew = is.length >= was.length && Arrays.equals(was, 0, was.length, is, 0, was.length)
    val values = encoding.decodeValues(if (grew) Arrays.copyOfRange(is, was.length, is.length) else is)
    val written = values.zipWithIndex.map { case (value, i) =>
      val kind = if (grew || i > 0) RecordType.MERGE_RECORD else RecordType.PUT_RECORD
      Change(kind, encoding.decodeKey(key), value)
    }
    if (grew) written else Iterator.single(delete(key)) ++ written
  }

  private def delete(key: Array[Byte]): Change = Change(RecordType.DELETE_RECORD, encoding.decodeKey(key), null)
}

object ChangeFeed {
  private final case class Change(kind: RecordType.Value, key: UnsafeRow, value: UnsafeRow)

  private def whole(values: KeyedValues, key: Array[Byte]): Array[Byte] = {
    val out = new ByteArrayOutputStream
    values.parts(key).foreach(out.writeBytes)
    out.toByteArray
  }
}
