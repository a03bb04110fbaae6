package ckpt.spark.state

import java.util.Arrays

import scala.collection.mutable

import ckpt.spark.spill.{Space, SpilledIndex}

/** What a transaction changed in one family: entries, and what each was before (null: it was not there). */
final class Changes {
  val entries = new mutable.ArrayBuffer[Entry]
  val before = new mutable.ArrayBuffer[Array[Byte]]

  /** What it costs to be able to undo it: an estimate. */
  def undoBytes: Long = {
    var bytes = 0L
    for (i <- entries.indices) {
      bytes += entries(i).key.length + (if (before(i) == null) 0 else before(i).length) + Changes.OverheadBytes
    }
    bytes
  }

  /**
   * Leaves the new values in the arrays that the old ones were in, where they fit, and the old ones in those of the new:
   * an old entry then has an old array, a young one lives only as long as its undoing, and the garbage collector has
   * next to nothing to copy or to mark. Only where nobody looks at the arrays any more.
   */
  def swapArrays(): Unit = {
    val spare = new Array[Byte](Changes.MostSwappedBytes)
    for (i <- entries.indices) {
      val (old, young) = (before(i), entries(i).value)
      if (old != null && young != null && old.length == young.length && old.length <= spare.length) {
        System.arraycopy(old, 0, spare, 0, old.length)
        System.arraycopy(young, 0, old, 0, old.length)
        System.arraycopy(spare, 0, young, 0, old.length)
        entries(i).value = old
        before(i) = young
      }
    }
  }
}

object Changes {
  private val OverheadBytes = 64
  private val MostSwappedBytes = 512
}

/**
 * The keys of one column family, changed in place; what the open transaction changed can be undone exactly. They are in
 * memory, on disk, or still in the backend, which makes no difference but in time.
 */
final class Family(val id: Int) {
  @volatile private var index: Index = new HashIndex
  @volatile private var missing: Missing = _ // null: all keys are here
  private var known: HashIndex = _ // while all are loaded: what was here before
  private var completingAgain = false
  private var absent = 0L
  private var ordered = false
  private var open = new Changes
  private var lists = false
  private var keys = 0L
  private var rows = 0L
  private var bytes = 0L

  def numKeys: Long = keys
  def numRows: Long = rows
  def numBytes: Long = bytes
  def changes: Changes = open

  /** An estimate: the bytes of keys and values in memory, and the objects that hold them. */
  def memoryBytes: Long = if (index.isInstanceOf[SpilledIndex]) 0 else sizeBytes

  /** The same, wherever they are. */
  def sizeBytes: Long = bytes + (rows + absent) * (if (ordered) OrderedIndex.OverheadBytes else HashIndex.OverheadBytes)

  /** Keeps the keys in order from now on; a family read from the backend is not known to need it until asked. */
  def keepOrdered(): Unit = if (!ordered) {
    ordered = true
    if (!index.isInstanceOf[OrderedKeys]) {
      require(open.entries.isEmpty, "a family is ordered before it is written to")
      moveTo(new OrderedIndex)
    }
  }

  /** Whether keys have lists of values, whose chunks are rows; a family is not known to until its row is there. */
  def holdLists(yes: Boolean): Unit = if (lists != yes) {
    lists = yes
    if (missing == null) keys = if (lists) all.count(entry => Lists.isFirst(entry.key)).toLong else rows
  }

  def get(key: Array[Byte]): Array[Byte] = {
    val entry = find(key)
    if (entry == null) null else entry.value
  }

  /** Sets a key; the arrays are kept, so the caller gives them away. */
  def put(key: Array[Byte], value: Array[Byte]): Unit = changing {
    val found = find(key)
    change(noted(if (found == null) index.insert(key, null) else found), value)
  }

  def remove(key: Array[Byte]): Unit = changing {
    val found = find(key)
    if (found != null && found.value != null) change(noted(found), null)
  }

  /** Adds a key that is not there, outside of any transaction: the state as it is read from the backend. */
  def load(bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit = {
    val isPacked = index match {
      // Rows of the catalogue are known by their arrays, and keys of lists are counted by what is in them.
      case packing: HashIndex if id != Catalogue.Id && !lists => packing.load(bytes, key, keyBytes, value, valueBytes)
      case _ => false
    }
    if (isPacked) {
      keys += 1
      countRow(keyBytes + valueBytes, 1)
    } else {
      val ownKey = Arrays.copyOfRange(bytes, key, key + keyBytes)
      val ownValue = Arrays.copyOfRange(bytes, value, value + valueBytes)
      add(ownKey, ownValue)
      count(ownKey, ownValue, 1)
    }
  }

  // -- keys that are still in the backend ---------------------------------------------------------

  /** Leaves the keys, so many, in the backend until somebody asks for them. */
  def begin(numKeys: Long, from: Missing): Unit = {
    keys = numKeys
    missing = from
  }

  def lacks(key: Array[Byte]): Boolean = missing != null && index.find(key) == null

  /** Takes a key that it lacks from the backend; null: it is not there. */
  def remember(key: Array[Byte], value: Array[Byte]): Unit = {
    index.insert(key, value)
    if (value == null) absent += 1 else countRow(key.length + value.length, 1)
  }

  /** All rows come from now on, perhaps for the second time. */
  def completing(again: Boolean): Unit = {
    completingAgain = again
    if (!again) {
      known = new HashIndex
      index.entries.foreach(entry => known.insert(entry.key, entry.value))
    }
  }

  /** Takes one of all rows of the backend, unless it knows better. */
  def complete(key: Array[Byte], value: Array[Byte]): Unit = {
    if (completingAgain) flush()
    if ((known == null || known.find(key) == null) && !(completingAgain && index.find(key) != null)) {
      add(key, value)
      countRow(key.length + value.length, 1)
    }
  }

  /** All rows were here. */
  def completed(): Unit = {
    flush()
    index match {
      case there: InMemory if absent > 0 =>
        there.entries.filter(entry => entry.value == null && !entry.touched).foreach(there.delete)
      case _ =>
    }
    known = null
    absent = 0
    if (!lists) keys = rows
    missing = null
  }

  // -- all of them ----------------------------------------------------------------------------------

  /** What is here: everything, or what was asked for until now. */
  def here: Iterator[Entry] = index.entries.filter(_.value != null)

  def all: Iterator[Entry] = {
    loadMissing()
    here
  }

  def startingWith(prefix: Array[Byte]): Iterator[Entry] = {
    loadMissing()
    inOrder.startingWith(prefix).filter(_.value != null)
  }

  def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] = {
    loadMissing()
    inOrder.range(from, until).filter(_.value != null)
  }

  /** Ends the transaction and keeps what it did; the answer undoes it later. */
  def seal(): Changes = {
    val done = close()
    // Rows of the catalogue are known by their arrays.
    if (id != Catalogue.Id) done.swapArrays()
    index.settle(done.entries)
    done
  }

  /** Ends the transaction and undoes what it did. */
  def revert(): Unit = {
    val done = close()
    for (i <- done.entries.indices) change(done.entries(i), done.before(i))
    index.revert(done.entries)
  }

  /** Undoes what a sealed transaction did. Between the two an entry may have been deleted and made anew. */
  def undo(done: Changes): Unit = {
    val undone = new mutable.ArrayBuffer[Entry](done.entries.length)
    for (i <- done.entries.indices) {
      // What is not here needs no undoing: the backend has it as it was.
      val key = done.entries(i).key
      val found = index.find(key)
      val entry = if (found == null) index.insert(key, null) else found
      change(entry, done.before(i))
      undone += entry
    }
    index.settle(undone)
  }

  /** Moves the keys to disk, but for what the open transaction has changed. A failure leaves them where they are. */
  def spillTo(space: Space): Unit = if (!index.isInstanceOf[SpilledIndex]) {
    val spilled = new SpilledIndex(space, id)
    index.entries.foreach(entry => if (!entry.touched && entry.value != null) spilled.add(entry.key, entry.value))
    for (i <- open.entries.indices) {
      if (open.before(i) != null) spilled.add(open.entries(i).key, open.before(i))
      spilled.hold(open.entries(i))
    }
    spilled.flush()
    index = spilled
  }

  /** Moves the keys back to memory. */
  def bringBack(): Unit = if (index.isInstanceOf[SpilledIndex]) {
    require(open.entries.isEmpty, "a family is not moved while a transaction is open")
    moveTo(if (ordered) new OrderedIndex else new HashIndex)
  }

  /** What was loaded until now can be found. */
  def flush(): Unit = index match {
    case spilled: SpilledIndex => spilled.flush()
    case packing: HashIndex => packing.flush()
    case _ =>
  }

  /** Adds a row that is not here. */
  private def add(key: Array[Byte], value: Array[Byte]): Unit = index match {
    case spilled: SpilledIndex => spilled.add(key, value)
    case _ => index.insert(key, value)
  }

  private def loadMissing(): Unit = {
    val rest = missing
    if (rest != null) rest.load()
  }

  private def changing(change: => Unit): Unit = {
    val rest = missing
    if (rest == null) change else rest.synchronized(change)
  }

  private def moveTo(other: Index): Unit = {
    index.entries.foreach(entry => other.insert(entry.key, entry.value))
    index = other
  }

  private def close(): Changes = {
    val done = open
    open = new Changes
    done.entries.foreach(_.touched = false)
    done
  }

  private def inOrder: OrderedKeys = index match {
    case yes: OrderedKeys if ordered => yes
    case _ => throw new IllegalStateException("a scan needs a family whose keys are kept in order")
  }

  private def find(key: Array[Byte]): Entry = {
    val rest = missing // before the look: afterwards all may have come in between
    val found = index.find(key)
    if (found != null || rest == null) found
    else {
      rest.fetch(this, key)
      index.find(key)
    }
  }

  /** The entry to change, once it is noted what it was before the transaction. */
  private def noted(entry: Entry): Entry =
    if (entry.touched) entry
    else {
      val held = index.hold(entry)
      held.touched = true
      open.entries += held
      open.before += held.value
      held
    }

  private def change(entry: Entry, value: Array[Byte]): Unit = {
    if (entry.value != null) count(entry.key, entry.value, -1)
    entry.value = value
    if (value != null) count(entry.key, value, 1)
  }

  private def count(key: Array[Byte], value: Array[Byte], by: Int): Unit = {
    if (!lists || Lists.isFirst(key)) keys += by
    countRow(key.length + value.length, by)
  }

  private def countRow(rowBytes: Int, by: Int): Unit = {
    rows += by
    bytes += by * rowBytes
  }
}
