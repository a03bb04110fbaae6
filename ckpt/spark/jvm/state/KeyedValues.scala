package ckpt.spark.state

import java.util.Arrays

import scala.collection.mutable

/** The rows of a family as an operator sees them: by key, each with one value or with a list of them. */
sealed trait KeyedValues {

  /** The value of a key, or the beginning of its list; null if the key is not there. */
  def first(key: Array[Byte]): Array[Byte]

  /** Everything that a key has now, in order; a list is several parts. */
  def parts(key: Array[Byte]): Iterator[Array[Byte]]

  /** Sets a key; both arrays are given away. */
  def put(key: Array[Byte], value: Array[Byte]): Unit

  /** Adds values behind those that the key has. */
  def append(key: Array[Byte], values: Array[Byte]): Unit

  def remove(key: Array[Byte]): Unit

  /** Keys, each with what `first` says; in order if the family is kept so. */
  def all: Iterator[Entry]

  def startingWith(prefix: Array[Byte]): Iterator[Entry]

  def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry]
}

/** One value for each key: rows are what they seem. */
final class SingleValues(family: Family) extends KeyedValues {
  override def first(key: Array[Byte]): Array[Byte] = family.get(key)
  override def parts(key: Array[Byte]): Iterator[Array[Byte]] = Option(family.get(key)).iterator
  override def put(key: Array[Byte], value: Array[Byte]): Unit = family.put(key, value)
  override def append(key: Array[Byte], values: Array[Byte]): Unit =
    throw new UnsupportedOperationException("values are appended in a family with several of them for a key")
  override def remove(key: Array[Byte]): Unit = family.remove(key)
  override def all: Iterator[Entry] = family.all
  override def startingWith(prefix: Array[Byte]): Iterator[Entry] = family.startingWith(prefix)
  override def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] = family.range(from, until)
}

/**
 * A list of values for each key, in chunks that are rows of their own: the key and the chunk's number (`u32`, big
 * endian) to some values. Chunks are numbered from 0 without a gap.
 *
 * Appending adds a chunk, which swallows those before it that are no longer than itself, so a list of n values has
 * about log n chunks and each value is copied about log n times in its life. What a transaction changed, and so
 * what it commits, is the list's tail.
 *
 * Only numbers follow a key, and the first is 0: so the first chunks of all keys are in the order of the keys.
 */
final class Lists(family: Family) extends KeyedValues {
  import Lists._

  override def first(key: Array[Byte]): Array[Byte] = family.get(numbered(key))

  override def parts(key: Array[Byte]): Iterator[Array[Byte]] = chunks(numbered(key)).iterator

  override def put(key: Array[Byte], value: Array[Byte]): Unit = replace(key, 0, chunks(numbered(key)).length, value)

  override def append(key: Array[Byte], values: Array[Byte]): Unit = if (values.nonEmpty) {
    val has = chunks(numbered(key))
    var from = has.length
    var bytes = values.length
    while (from > 0 && swallows(bytes, has(from - 1).length)) {
      from -= 1
      bytes += has(from).length
    }
    val tail = new Array[Byte](bytes)
    var at = 0
    for (n <- from until has.length) {
      System.arraycopy(has(n), 0, tail, at, has(n).length)
      at += has(n).length
    }
    System.arraycopy(values, 0, tail, at, values.length)
    replace(key, from, has.length, tail)
  }

  override def remove(key: Array[Byte]): Unit = {
    val stored = numbered(key)
    for (n <- chunks(stored).indices) family.remove(number(stored, n))
  }

  override def all: Iterator[Entry] = keys(family.all)

  override def startingWith(prefix: Array[Byte]): Iterator[Entry] =
    keys(family.range(numbered(prefix), null)).takeWhile { entry =>
      entry.key.length >= prefix.length && Arrays.equals(entry.key, 0, prefix.length, prefix, 0, prefix.length)
    }

  override def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] =
    keys(family.range(if (from == null) null else numbered(from), if (until == null) null else numbered(until)))

  private def keys(rows: Iterator[Entry]): Iterator[Entry] = rows.filter(row => isFirst(row.key)).map { row =>
    new Entry(keyOf(row.key), row.hash, row.value)
  }

  /** The chunks of a key as they are now; `stored` is a numbered key that is written over. */
  private def chunks(stored: Array[Byte]): mutable.ArrayBuffer[Array[Byte]] = {
    val found = new mutable.ArrayBuffer[Array[Byte]](4)
    var chunk = family.get(number(stored, 0))
    while (chunk != null) {
      found += chunk
      chunk = family.get(number(stored, found.length))
    }
    found
  }

  /** Makes `tail` the chunk with number `from`, which is the last one from now on. */
  private def replace(key: Array[Byte], from: Int, had: Int, tail: Array[Byte]): Unit = {
    family.put(number(numbered(key), from), tail)
    if (from + 1 < had) {
      val stored = numbered(key)
      for (n <- from + 1 until had) family.remove(number(stored, n))
    }
  }
}

object Lists {
  private val NumberBytes = 4
  private val SmallBytes = 256
  private val LongestBytes = 16 << 20

  /** Whether a stored key is that of a list's first chunk: there is one for each key. */
  def isFirst(stored: Array[Byte]): Boolean = {
    val end = stored.length
    end >= NumberBytes &&
    stored(end - 1) == 0 && stored(end - 2) == 0 && stored(end - 3) == 0 && stored(end - 4) == 0
  }

  /** The key that a stored key is a chunk of. */
  def keyOf(stored: Array[Byte]): Array[Byte] = Arrays.copyOf(stored, stored.length - NumberBytes)

  /** Whether a chunk becomes part of the one behind it. Rows cost something, so small ones always do. */
  private def swallows(bytes: Int, before: Int): Boolean =
    before <= math.max(bytes, SmallBytes) && bytes.toLong + before <= LongestBytes

  private def numbered(key: Array[Byte]): Array[Byte] = Arrays.copyOf(key, key.length + NumberBytes)

  private def number(stored: Array[Byte], n: Int): Array[Byte] = {
    val end = stored.length
    stored(end - 4) = (n >> 24).toByte
    stored(end - 3) = (n >> 16).toByte
    stored(end - 2) = (n >> 8).toByte
    stored(end - 1) = n.toByte
    stored
  }
}
