package ckpt.spark.spill

import java.util.Arrays
import java.util.concurrent.ConcurrentSkipListMap

import scala.collection.mutable

import ckpt.spark.state.{Entry, HashIndex, OrderedKeys}

/**
 * The entries of one family on local disk, in ascending order of their keys' bytes. What the open transaction changes is
 * held in memory and written when it is settled, in batches.
 *
 * Nothing is written on disk while a transaction is open, so an iterator may read it piece by piece and sees one state.
 */
final class SpilledIndex(space: ScratchSpace, family: Int) extends OrderedKeys {
  import SpilledIndex._

  private val held = new ConcurrentSkipListMap[Array[Byte], Entry](Arrays.compareUnsigned(_: Array[Byte], _))
  // Operators read a key and put it later, which then needs no second read.
  private var readBefore = new HashIndex
  private val writer = space.writer(family)
  @volatile private var settled = 0L

  override def find(key: Array[Byte]): Entry = {
    val changed = held.get(key)
    if (changed != null) changed
    else held.synchronized {
      val read = readBefore.find(key)
      if (read != null) read else readFromDisk(key)
    }
  }

  private def readFromDisk(key: Array[Byte]): Entry = {
    val value = space.get(family, key)
    if (value == null) null
    else {
      if (readBefore.size >= MostReadBefore) readBefore = new HashIndex
      readBefore.insert(key.clone, value) // the caller may go on with the array
    }
  }

  override def insert(key: Array[Byte], value: Array[Byte]): Entry = {
    val entry = new Entry(key, 0, value)
    held.put(key, entry)
    entry
  }

  override def hold(entry: Entry): Entry = {
    held.put(entry.key, entry)
    entry
  }

  override def settle(changed: mutable.ArrayBuffer[Entry]): Unit = {
    changed.foreach { entry =>
      if (entry.value == null) writer.delete(entry.key) else writer.put(entry.key, entry.value)
      entry.value = null // undoing needs only its key
    }
    writer.flush()
    release()
  }

  override def revert(changed: mutable.ArrayBuffer[Entry]): Unit = release()

  override def isOnDisk: Boolean = true

  override def add(key: Array[Byte], value: Array[Byte]): Unit = writer.put(key, value)

  override def flush(): Unit = writer.flush()

  /** Entries without a value are those of the open transaction only. */
  override def dropAbsent(): Unit = ()

  override def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] = {
    val merged = new Merged(if (from == null) Array.emptyByteArray else from, until)
    // Spark's suites ask that an iterator over an empty store stays empty.
    if (merged.hasNext) merged else Iterator.empty
  }

  private def release(): Unit = {
    held.clear()
    readBefore = new HashIndex
    settled += 1
  }

  /** What is on disk, with what the transaction changed in its place and between. */
  private final class Merged(from: Array[Byte], until: Array[Byte]) extends Iterator[Entry] {
    private val began = settled
    private var rows = space.read(family, from, until, FirstRows)
    private var at = 0
    private var last: Array[Byte] = _
    private var coming: Entry = _

    override def hasNext: Boolean = {
      // Not in `next`: what the caller does with one entry may change the one after it.
      if (coming == null) coming = find()
      coming != null
    }

    override def next(): Entry = {
      if (!hasNext) throw new NoSuchElementException("no more entries")
      val entry = coming
      last = entry.key
      coming = null
      entry
    }

    private def find(): Entry = {
      if (settled != began) throw new IllegalStateException("an iterator ends with the transaction that it was made in")
      if (at == rows.count && rows.next != null) {
        rows = space.read(family, rows.next, until, math.min(rows.count * 4, MostRows))
        at = 0
      }
      val ahead = if (last == null) held.ceilingEntry(from) else held.higherEntry(last)
      val changed = if (ahead == null || !isBefore(ahead.getKey, until)) null else ahead.getValue
      val order =
        if (at == rows.count) 1
        else if (changed == null) -1
        else Arrays.compareUnsigned(rows.keys(at), changed.key)
      if (order > 0) changed
      else {
        at += 1
        if (order == 0) changed else new Entry(rows.keys(at - 1), 0, rows.values(at - 1))
      }
    }
  }
}

object SpilledIndex {
  // Most prefix scans are over a few rows, most others over all of them.
  private val FirstRows = 16
  private val MostRows = 4096
  private val MostReadBefore = 1 << 16

  private def isBefore(key: Array[Byte], until: Array[Byte]): Boolean =
    until == null || Arrays.compareUnsigned(key, until) < 0
}
