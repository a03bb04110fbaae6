package ckpt.spark.state

import java.util.Arrays
import java.util.concurrent.ConcurrentSkipListMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32

/**
 * One key and its value now. An entry without a value was removed by the transaction that is open: it keeps its
 * place until that transaction ends, so that iterators are not disturbed and undoing needs no search.
 */
sealed class Entry(val key: Array[Byte], keyHash: Int, var value: Array[Byte]) {
  // The mark shares an int with the hash, or each entry would be 32 bytes instead of 24.
  private[this] var bits: Int = keyHash & Int.MaxValue

  def hash: Int = bits & Int.MaxValue

  /** Whether the open transaction has already noted what this entry was before. */
  def touched: Boolean = bits < 0

  def touched_=(yes: Boolean): Unit = bits = if (yes) bits | Int.MinValue else bits & Int.MaxValue
}

/** An entry that was made of a packed row. Until it is changed the row counts, and not this entry. */
final class LoadedEntry(key: Array[Byte], keyHash: Int, loaded: Array[Byte]) extends Entry(key, keyHash, loaded)

/** Takes the changes of the open transaction for another entry, until the transaction ends. */
final class StandIn(val of: Entry) extends Entry(of.key, of.hash, of.value)

/**
 * Finds entries by key. Iterators see each entry that was there when they were made exactly once, whatever is put
 * or removed meanwhile. One thread changes it; another may look for keys that are not being changed: Spark feeds Python
 * workers from a thread of its own while it takes their results.
 */
trait Index {
  def find(key: Array[Byte]): Entry

  /** Adds an entry whose key is not there. */
  def insert(key: Array[Byte], value: Array[Byte]): Entry

  /** The transaction is about to change this entry for the first time; the answer is what it changes instead. */
  def hold(entry: Entry): Entry

  /**
   * Ends a transaction: what these entries, all that it changed, are now is the state; without a value they are gone.
   * Those that stood in for others are replaced by them.
   */
  def settle(changed: mutable.ArrayBuffer[Entry]): Unit

  /** Ends a transaction whose entries are again what they were before it. */
  def revert(changed: mutable.ArrayBuffer[Entry]): Unit

  def entries: Iterator[Entry]

  // -- rows outside of transactions ---------------------------------------------------------------

  def isOnDisk: Boolean

  /** Adds a row whose key is not there; it can be found after `flush`. */
  def add(key: Array[Byte], value: Array[Byte]): Unit

  /** Adds such a row from the buffer that it was read into, without an array of its own; false if `add` is to do it. */
  def pack(bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Boolean = false

  def flush(): Unit = ()

  /** Removes entries without a value, but for those that the open transaction has changed. */
  def dropAbsent(): Unit
}

/** An index whose entries come in ascending order of their keys' bytes, for prefix and range scans. */
trait OrderedKeys extends Index {

  /** Entries from `from` (inclusive) to `until` (exclusive); null is no bound. */
  def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry]

  override def entries: Iterator[Entry] = range(null, null)

  def startingWith(prefix: Array[Byte]): Iterator[Entry] = range(prefix, OrderedKeys.boundOf(prefix))
}

object OrderedKeys {

  /** The least key that is greater than all that start with the prefix; null if there is none. */
  def boundOf(prefix: Array[Byte]): Array[Byte] = {
    val last = prefix.lastIndexWhere(_ != -1)
    if (last < 0) null
    else {
      val bound = Arrays.copyOf(prefix, last + 1)
      bound(last) = (bound(last) + 1).toByte
      bound
    }
  }
}

/** An index whose entries are the state: what a transaction leaves in them needs no writing. */
trait InMemory extends Index {
  def delete(entry: Entry): Unit

  override def hold(entry: Entry): Entry = entry

  override def settle(changed: mutable.ArrayBuffer[Entry]): Unit =
    changed.foreach(entry => if (entry.value == null) delete(entry))

  override def revert(changed: mutable.ArrayBuffer[Entry]): Unit = settle(changed)

  override def isOnDisk: Boolean = false

  override def add(key: Array[Byte], value: Array[Byte]): Unit = insert(key, value)

  override def dropAbsent(): Unit = entries.filter(entry => entry.value == null && !entry.touched).foreach(delete)
}

/**
 * Open addressing over entries: 24 bytes and about two slots of 4 bytes for each key, beside its two arrays.
 *
 * An iterator walks over the slots as they were when it was made; growing makes new slots and leaves the old ones
 * to it. Deleted slots keep a marker, so that nothing moves below a running iterator.
 *
 * What a transaction does to an entry that was there before, it does to another that stands in for it: a reference to a
 * new array in an old entry is one more place that the garbage collector has to look at, and most of a batch's values
 * fit into the arrays of those before them (`Changes.swapArrays`).
 *
 * What was loaded stays packed until it is changed. Once that has happened to half of it, or all was iterated over more
 * than once, the rest becomes entries too, between transactions.
 */
final class HashIndex extends InMemory {
  import HashIndex._

  @volatile private var packed: PackedRows = _ // null: nothing is
  private var iterations = 0 // over what is packed
  @volatile private var slots = new Array[Entry](SmallestCapacity)
  @volatile private var working: HashIndex = _ // null: no entry has a stand-in
  private var live = 0
  private var used = 0

  def size: Int = live + (if (packed == null) 0 else packed.size - packed.taken)

  override def find(key: Array[Byte]): Entry = {
    val hash = hashOf(key, 0, key.length)
    val entry = findIn(slots, hash, key)
    if (entry != null) current(entry)
    else {
      val rows = packed
      val slot = if (rows == null) -1 else rows.find(hash, key)
      if (slot < 0 || rows.isTaken(slot)) null else rows.entry(slot)
    }
  }

  override def pack(bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Boolean = {
    if (packed == null) packed = new PackedRows
    packed.add(hashOf(bytes, key, keyBytes), bytes, key, keyBytes, value, valueBytes)
  }

  override def flush(): Unit = if (packed != null) packed.trim()

  override def insert(key: Array[Byte], value: Array[Byte]): Entry =
    add(new Entry(key, hashOf(key, 0, key.length), value))

  private def add(entry: Entry): Entry = {
    if ((used + 1) * 5L > slots.length * 3L) rebuild()
    place(slots, entry)
    used += 1
    live += 1
    entry
  }

  private def current(entry: Entry): Entry = {
    val standIns = working
    if (standIns == null || !entry.touched) entry
    else {
      val found = standIns.find(entry.key)
      if (found == null) entry else found
    }
  }

  /** One that has no value yet is the transaction's own. */
  override def hold(entry: Entry): Entry =
    if (entry.value == null) entry
    else {
      entry match {
        case loaded: LoadedEntry => unpack(loaded)
        case _ =>
      }
      if (working == null) working = new HashIndex
      val standIn = working.add(new StandIn(entry))
      standIn.touched = true
      entry.touched = true
      standIn
    }

  override def settle(changed: mutable.ArrayBuffer[Entry]): Unit = {
    for (i <- changed.indices) changed(i) match {
      case standIn: StandIn =>
        val entry = standIn.of
        entry.touched = false
        if (entry.value ne standIn.value) entry.value = standIn.value
        changed(i) = entry
      case _ =>
    }
    working = null
    super.settle(changed)
    val rows = packed
    if (rows != null && (rows.taken > rows.size / 2 || iterations > 1)) {
      var slot = rows.occupied(0)
      while (slot >= 0) {
        if (!rows.isTaken(slot)) add(rows.entry(slot))
        slot = rows.occupied(slot + 1)
      }
      packed = null
    }
  }

  /** Makes an entry that was found among packed rows the one that counts. */
  private def unpack(entry: LoadedEntry): Unit = {
    val rows = packed
    val slot = if (rows == null) -1 else rows.find(entry.hash, entry.key)
    if (slot >= 0 && !rows.isTaken(slot)) {
      add(entry)
      rows.take(slot)
    }
  }

  override def delete(entry: Entry): Unit = {
    val mask = slots.length - 1
    var at = entry.hash & mask
    while (slots(at) != null && (slots(at) ne entry)) at = (at + 1) & mask
    if (slots(at) != null) {
      slots(at) = Deleted
      live -= 1
    }
  }

  override def entries: Iterator[Entry] = {
    val rows = packed
    // Spark's suites ask that an iterator over an empty store stays empty, and that others meet what is added.
    if (rows == null) if (live == 0) Iterator.empty else inSlots(alsoUnpacked = true)
    else {
      iterations += 1
      // Rows that are taken while this runs are met where they were, and not once more.
      loadedEntries(rows) ++ inSlots(alsoUnpacked = false)
    }
  }

  private def inSlots(alsoUnpacked: Boolean): Iterator[Entry] = {
    val seen = slots
    new Iterator[Entry] {
      private var at = 0
      private def isWanted(entry: Entry) =
        entry != null && (entry ne Deleted) && (alsoUnpacked || !entry.isInstanceOf[LoadedEntry])
      private def settle(): Unit = while (at < seen.length && !isWanted(seen(at))) at += 1
      override def hasNext: Boolean = { settle(); at < seen.length }
      override def next(): Entry = {
        settle()
        if (at >= seen.length) throw new NoSuchElementException("no more entries")
        at += 1
        current(seen(at - 1))
      }
    }
  }

  /** What was loaded, as it is now: of a row that was taken, the entry that was made of it, if it is still there. */
  private def loadedEntries(rows: PackedRows): Iterator[Entry] =
    Iterator.iterate(rows.occupied(0))(slot => rows.occupied(slot + 1)).takeWhile(_ >= 0).map { slot =>
      val loaded = rows.entry(slot)
      if (!rows.isTaken(slot)) loaded
      else findIn(slots, loaded.hash, loaded.key) match {
        case made: LoadedEntry => current(made)
        case _ => null // gone, or made anew since, and then met with the others
      }
    }.filter(_ != null)

  private def rebuild(): Unit = {
    var capacity = SmallestCapacity
    while (capacity < (live + 1) * 3L) capacity *= 2
    val fresh = new Array[Entry](capacity)
    for (entry <- slots if entry != null && (entry ne Deleted)) place(fresh, entry)
    slots = fresh
    used = live
  }
}

object HashIndex {

  /** What one key costs, beside its bytes and those of its value: entry, slots, heads of two arrays. */
  val OverheadBytes = 72
  private val SmallestCapacity = 16
  private val Deleted = new Entry(Array.emptyByteArray, 0, null)

  private def hashOf(bytes: Array[Byte], key: Int, keyBytes: Int): Int =
    Murmur3_x86_32.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET.toLong + key, keyBytes, 42) & Int.MaxValue

  private def findIn(slots: Array[Entry], hash: Int, key: Array[Byte]): Entry = {
    val mask = slots.length - 1
    var at = hash & mask
    var entry = slots(at)
    while (entry != null) {
      if (entry.hash == hash && (entry ne Deleted) && Arrays.equals(entry.key, key)) return entry
      at = (at + 1) & mask
      entry = slots(at)
    }
    null
  }

  private def place(slots: Array[Entry], entry: Entry): Unit = {
    val mask = slots.length - 1
    var at = entry.hash & mask
    while (slots(at) != null) at = (at + 1) & mask
    slots(at) = entry
  }
}

/** A skip list over entries. Its iterators tolerate changes, a tree's do not: timers are set while timers are iterated. */
final class OrderedIndex extends InMemory with OrderedKeys {
  private val byKey = new ConcurrentSkipListMap[Array[Byte], Entry](Arrays.compareUnsigned(_: Array[Byte], _))

  override def find(key: Array[Byte]): Entry = byKey.get(key)

  override def insert(key: Array[Byte], value: Array[Byte]): Entry = {
    val entry = new Entry(key, 0, value)
    byKey.put(key, entry)
    entry
  }

  override def delete(entry: Entry): Unit = byKey.remove(entry.key, entry)

  override def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] = {
    val found =
      if (from != null && until != null && Arrays.compareUnsigned(from, until) >= 0) return Iterator.empty
      else if (from != null && until != null) byKey.subMap(from, until)
      else if (from != null) byKey.tailMap(from)
      else if (until != null) byKey.headMap(until)
      else byKey
    found.values.iterator.asScala
  }
}

object OrderedIndex {

  /** What one key costs, beside its bytes and those of its value: entry, nodes of the list, heads of two arrays. */
  val OverheadBytes = 104
}
