package ckpt.spark.routing

import java.io.{ObjectInputStream, ObjectOutputStream}

import scala.collection.mutable

import org.apache.datasketches.frequencies.{ErrorType, LongsSketch}
import org.apache.spark.util.AccumulatorV2

/**
 * How many rows an exchange got in one batch: of each partition exactly, and of each heavy key, as far as it is heavier
 * than the error. Tasks count by themselves, and Spark adds up what each of them says when it has ended.
 *
 * @param named hashes of keys whose names are wanted
 */
final class KeyCounts(partitions: Int, named: Set[Int]) extends AccumulatorV2[Int, Long] {
  import KeyCounts._

  @transient private var sketch = new LongsSketch(Slots)
  private var rows = new Array[Long](partitions)
  private val names = mutable.HashMap[Int, String]()

  /** Rows of each partition. */
  def total(partition: Int): Long = rows(partition)

  /** By how much the count of a key may be too small, or that of one that is not listed too large. */
  def error: Long = sketch.getMaximumError

  /** Hashes of keys that are surely heavier than the error, with their rows. */
  def heavy: Seq[(Int, Long)] =
    sketch.getFrequentItems(ErrorType.NO_FALSE_POSITIVES).toSeq.map(row => (row.getItem.toInt, row.getEstimate))

  def nameOf(hash: Int): Option[String] = names.get(hash)

  /** Counts a row of a key; `name` is asked for once for each key whose name is wanted. */
  def count(hash: Int, partition: Int, name: => String): Unit = {
    sketch.update(hash)
    rows(partition) += 1
    if (named.nonEmpty && named(hash) && !names.contains(hash)) names(hash) = name
  }

  override def add(hash: Int): Unit = throw new UnsupportedOperationException("a row is counted with its partition")

  override def isZero: Boolean = sketch.isEmpty

  /** All rows. */
  override def value: Long = sketch.getStreamLength

  override def reset(): Unit = {
    sketch = new LongsSketch(Slots)
    rows = new Array[Long](partitions)
    names.clear()
  }

  override def copy(): KeyCounts = {
    val made = new KeyCounts(partitions, named)
    made.merge(this)
    made
  }

  override def merge(other: AccumulatorV2[Int, Long]): Unit = other match {
    case counted: KeyCounts =>
      sketch.merge(counted.sketch)
      for (partition <- rows.indices) rows(partition) += counted.rows(partition)
      names ++= counted.names
    case _ => throw new UnsupportedOperationException(s"rows by key are not merged with ${other.getClass}")
  }

  // As text: the sketch's bytes come through a library that prints a warning on every Java that Spark supports.
  private def writeObject(out: ObjectOutputStream): Unit = {
    out.defaultWriteObject()
    out.writeObject(sketch.serializeToString)
  }

  private def readObject(in: ObjectInputStream): Unit = {
    in.defaultReadObject()
    sketch = LongsSketch.getInstance(in.readObject().asInstanceOf[String])
  }
}

object KeyCounts {
  // The error is 3.5 / slots of all rows: 0.021 %, where 0.03 % are allowed.
  private val Slots = 1 << 14
}
