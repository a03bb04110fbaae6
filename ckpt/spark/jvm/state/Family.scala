package ckpt.spark.state

import java.util.Arrays

import scala.collection.mutable

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
   * next to nothing to copy or to mark. Only for arrays that no caller keeps.
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
 * The keys of one column family, changed in place; what the open transaction changed can be undone exactly.
 *
 * Keys are in one of three places, each with one owner: in memory (`HashIndex`, or `OrderedIndex` if they are scanned in
 * order), on disk (another index of a `Disk`), or still in the backend only (`RemoteKeys`). All rows of the backend come
 * by one protocol: `loading`, then `load` for each row, then `loaded`.
 */
final class Family(val id: Int) {
  @volatile private var index: Index = new HashIndex // all keys, or those that were asked for
  @volatile private var remote: RemoteKeys = _ // null: no key is in the backend only
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
  def memoryBytes: Long = if (index.isOnDisk) 0 else sizeBytes

  /** The same, wherever they are. */
  def sizeBytes: Long = {
    val rest = remote
    val absent = if (rest == null) 0 else rest.absentKeys
    bytes + (rows + absent) * (if (ordered) OrderedIndex.OverheadBytes else HashIndex.OverheadBytes)
  }

  /** Keeps the keys in order from now on; a family read from the backend is not known to need it until asked. */
  def keepOrdered(): Unit = if (!ordered) {
    ordered = true
    if (!index.isInstanceOf[OrderedKeys]) {
      require(open.entries.isEmpty, "a family is ordered before it is written to")
      moveTo(new OrderedIndex)
    }
  }

  /** Whether keys have lists of values, whose chunks are rows. The family's row in the catalogue says so. */
  def holdLists(yes: Boolean): Unit = if (lists != yes) {
    lists = yes
    if (remote == null) keys = if (lists) all.count(entry => Lists.isFirst(entry.key)).toLong else rows
  }

  def get(key: Array[Byte]): Array[Byte] = {
    val entry = find(key)
    if (entry == null) null else entry.value
  }

  /** Sets a key; the arrays are kept, so the caller gives them away. */
  def put(key: Array[Byte], value: Array[Byte]): Unit = {
    val rest = remote
    if (rest == null) set(key, value) else rest.rows.synchronized(set(key, value))
  }

  def remove(key: Array[Byte]): Unit = {
    val rest = remote
    if (rest == null) unset(key) else rest.rows.synchronized(unset(key))
  }

  // -- rows of the backend --------------------------------------------------------------------------

  /** From now on so many keys are in the backend only; each comes when it is asked for. */
  def begin(numKeys: Long, in: RemoteRows): Unit = {
    keys = numKeys
    remote = new RemoteKeys(in)
  }

  def lacks(key: Array[Byte]): Boolean = remote != null && index.find(key) == null

  /** Takes a key that it lacks from the backend; null: it is not there. */
  def remember(key: Array[Byte], value: Array[Byte]): Unit = {
    index.insert(key, value)
    if (value == null) remote.noteAbsent() else countRow(key.length + value.length, 1)
  }

  /** All rows of the backend come from now on. After a load that broke off they come once more. */
  def loading(): Unit = if (remote != null) {
    index.flush()
    remote.loading(index.entries)
  }

  /** Takes one of all rows of the backend, outside of any transaction. What the family knows already stays. */
  def load(bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit = {
    val rest = remote
    // Rows of the catalogue are known by their arrays, and keys of lists are counted by what is in them.
    val mayPack = rest == null && id != Catalogue.Id && !lists
    if (mayPack && index.pack(bytes, key, keyBytes, value, valueBytes)) {
      keys += 1
      countRow(keyBytes + valueBytes, 1)
    } else {
      val ownKey = Arrays.copyOfRange(bytes, key, key + keyBytes)
      if (rest == null || !rest.wasKnown(ownKey)) {
        val ownValue = Arrays.copyOfRange(bytes, value, value + valueBytes)
        index.add(ownKey, ownValue)
        if (rest == null) count(ownKey, ownValue, 1) else countRow(keyBytes + valueBytes, 1)
      }
    }
  }

  /** All rows of the backend were here, and can be found. */
  def loaded(): Unit = {
    index.flush()
    if (remote != null) {
      if (remote.absentKeys > 0) index.dropAbsent()
      if (!lists) keys = rows
      remote = null
    }
  }

  // -- all of them ----------------------------------------------------------------------------------

  /** What is here: everything, or what was asked for until now. */
  def here: Iterator[Entry] = index.entries.filter(_.value != null)

  def all: Iterator[Entry] = {
    loadRest()
    here
  }

  def startingWith(prefix: Array[Byte]): Iterator[Entry] = {
    loadRest()
    inOrder.startingWith(prefix).filter(_.value != null)
  }

  def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] = {
    loadRest()
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
      val key = done.entries(i).key
      // The backend is not asked: the value before the transaction is known.
      val found = index.find(key)
      val entry = if (found == null) index.insert(key, null) else found
      change(entry, done.before(i))
      undone += entry
    }
    index.settle(undone)
  }

  /** Moves the keys to disk, but for what the open transaction has changed. A failure leaves them where they are. */
  def spillTo(disk: Disk): Unit = if (!index.isOnDisk) {
    val spilled = disk.index(id)
    index.entries.foreach(entry => if (!entry.touched && entry.value != null) spilled.add(entry.key, entry.value))
    for (i <- open.entries.indices) {
      if (open.before(i) != null) spilled.add(open.entries(i).key, open.before(i))
      spilled.hold(open.entries(i))
    }
    spilled.flush()
    index = spilled
  }

  /** Moves the keys back to memory. */
  def bringBack(): Unit = if (index.isOnDisk) {
    require(open.entries.isEmpty, "a family is not moved while a transaction is open")
    moveTo(if (ordered) new OrderedIndex else new HashIndex)
  }

  private def set(key: Array[Byte], value: Array[Byte]): Unit = {
    val found = find(key)
    change(noted(if (found == null) index.insert(key, null) else found), value)
  }

  private def unset(key: Array[Byte]): Unit = {
    val found = find(key)
    if (found != null && found.value != null) change(noted(found), null)
  }

  private def loadRest(): Unit = {
    val rest = remote
    if (rest != null) rest.rows.load()
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
    val rest = remote // read first: between the two all rows may be loaded, and then the index has them
    val found = index.find(key)
    if (found != null || rest == null) found
    else {
      rest.rows.fetch(this, key)
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
