package ckpt.spark

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.ArrayDeque

import scala.collection.mutable

/** What a transaction changed in one family: entries, and what each was before (null: it was not there). */
final class Changes {
  val entries = new mutable.ArrayBuffer[Entry]
  val before = new mutable.ArrayBuffer[Array[Byte]]
}

/** The keys of one column family, changed in place; what the open transaction changed can be undone exactly. */
final class Family(val id: Int) {
  private var index: Index = new HashIndex
  private var open = new Changes
  private var live = 0L
  private var bytes = 0L

  def numKeys: Long = live
  def numBytes: Long = bytes
  def changes: Changes = open

  /** Keeps the keys in order from now on; a family read from the backend is not known to need it until asked. */
  def keepOrdered(): Unit = if (!index.isInstanceOf[OrderedIndex]) {
    require(open.entries.isEmpty, "a family is ordered before it is written to")
    val ordered = new OrderedIndex
    index.entries.foreach(entry => ordered.insert(entry.key, entry.value))
    index = ordered
  }

  def get(key: Array[Byte]): Array[Byte] = {
    val entry = index.find(key)
    if (entry == null) null else entry.value
  }

  /** Sets a key; the arrays are kept, so the caller gives them away. */
  def put(key: Array[Byte], value: Array[Byte]): Unit = {
    val entry = findOrInsert(key)
    note(entry)
    change(entry, value)
  }

  def remove(key: Array[Byte]): Unit = {
    val found = index.find(key)
    if (found != null && found.value != null) {
      note(found)
      change(found, null)
    }
  }

  /** Adds a key outside of any transaction: the state as it is read from the backend. */
  def load(key: Array[Byte], value: Array[Byte]): Unit = change(findOrInsert(key), value)

  def all: Iterator[Entry] = index.entries.filter(_.value != null)

  def startingWith(prefix: Array[Byte]): Iterator[Entry] = ordered.startingWith(prefix).filter(_.value != null)

  def range(from: Array[Byte], until: Array[Byte]): Iterator[Entry] =
    ordered.range(from, until).filter(_.value != null)

  /** Ends the transaction and keeps what it did; the answer undoes it later. */
  def seal(): Changes = {
    val done = open
    open = new Changes
    done.entries.foreach { entry =>
      entry.touched = false
      if (entry.value == null) index.delete(entry)
    }
    done
  }

  /** Undoes what a sealed transaction did. Between the two an entry may have been deleted and made anew. */
  def undo(done: Changes): Unit = for (i <- done.entries.indices.reverse) {
    val key = done.entries(i).key
    val before = done.before(i)
    if (before != null) change(findOrInsert(key), before)
    else {
      val found = index.find(key)
      if (found != null) {
        change(found, null)
        index.delete(found)
      }
    }
  }

  private def ordered: OrderedIndex = index match {
    case yes: OrderedIndex => yes
    case _ => throw new IllegalStateException("a scan needs a family whose keys are kept in order")
  }

  private def findOrInsert(key: Array[Byte]): Entry = {
    val found = index.find(key)
    if (found == null) index.insert(key, null) else found
  }

  private def note(entry: Entry): Unit = if (!entry.touched) {
    entry.touched = true
    open.entries += entry
    open.before += entry.value
  }

  private def change(entry: Entry, value: Array[Byte]): Unit = {
    if (entry.value != null) {
      live -= 1
      bytes -= entry.key.length + entry.value.length
    }
    entry.value = value
    if (value != null) {
      live += 1
      bytes += entry.key.length + value.length
    }
  }
}

/** Which commit a state is: its version, and its commit id where one is known. Version 0 is the empty state. */
final case class At(version: Long, commitId: Option[String])

/**
 * The working state of one store: one version at a time in maps that are changed in place. A transaction begins
 * with the first change and ends with `seal` or `revert`; sealed ones can be undone as long as they are retained, so
 * that a retry needs neither a copy of the state nor the backend.
 *
 * A stored key is the family's id (`u16`, big endian) and the key. Family 0 is the default one; the catalogue of all
 * others is family 65535: name to id and whether it is Spark's own.
 */
final class StateMap {
  import StateMap._

  private var at = At(0, None)
  private val byId = mutable.HashMap[Int, Family]()
  private val named = mutable.HashMap[String, Named]()
  private val undoable = new ArrayDeque[Sealed]
  clear()

  def position: At = at

  def names: Set[String] = named.keySet.toSet

  def find(name: String): Option[Family] = named.get(name).map(_.family)

  /** The family of a name, made now if there is none. */
  def create(name: String, internal: Boolean): Family = named.get(name) match {
    case Some(found) => found.family
    case None =>
      val id = byId.keysIterator.filter(_ != CatalogueId).max + 1
      require(id < CatalogueId, s"more than $CatalogueId column families in one store")
      catalogue.put(name.getBytes(UTF_8), encode(id, internal))
      readCatalogue()
      named(name).family
  }

  /** Removes a family with all its keys; false if there is none. */
  def drop(name: String): Boolean = named.get(name) match {
    case None => false
    case Some(found) =>
      found.family.all.foreach(entry => found.family.remove(entry.key))
      catalogue.remove(name.getBytes(UTF_8))
      readCatalogue()
      true
  }

  def numKeys: Long = named.valuesIterator.filterNot(_.internal).map(_.family.numKeys).sum

  def numInternalKeys: Long = named.valuesIterator.filter(_.internal).map(_.family.numKeys).sum

  /** An estimate: the bytes of keys and values, and the objects that hold them. */
  def memoryBytes: Long = byId.valuesIterator.map(f => f.numBytes + f.numKeys * BytesPerKey).sum

  /** What the open transaction changed, family by family. */
  def changes: Seq[(Int, Changes)] =
    byId.valuesIterator.filter(_.changes.entries.nonEmpty).map(f => (f.id, f.changes)).toSeq

  /** Keeps what the transaction did as `to`; at most `retain` transactions stay undoable. */
  def seal(to: At, retain: Int): Unit = {
    undoable.addLast(Sealed(at, byId.valuesIterator.map(f => f -> f.seal()).filter(_._2.entries.nonEmpty).toSeq))
    while (undoable.size > retain) undoable.removeFirst()
    at = to
  }

  /** Undoes the open transaction. */
  def revert(): Unit = {
    undo(byId.valuesIterator.map(f => f -> f.seal()).toSeq)
  }

  /** Goes back to an earlier commit if the transactions since then are retained; says whether it is there now. */
  def rollBackTo(wanted: At): Boolean = {
    val reachable = matches(at, wanted) || {
      val earlier = undoable.descendingIterator
      var found = false
      while (!found && earlier.hasNext) found = matches(earlier.next().from, wanted)
      found
    }
    if (reachable) while (!matches(at, wanted)) {
      val last = undoable.removeLast()
      undo(last.changes)
      at = last.from
    }
    reachable
  }

  /** Forgets everything: the empty state of version 0. */
  def clear(): Unit = {
    byId.clear()
    byId ++= Seq(DefaultId -> new Family(DefaultId), CatalogueId -> new Family(CatalogueId))
    undoable.clear()
    at = At(0, None)
    readCatalogue()
  }

  /** Takes one row of the backend. */
  def load(familyId: Int, key: Array[Byte], value: Array[Byte]): Unit =
    byId.getOrElseUpdate(familyId, new Family(familyId)).load(key, value)

  /** Says that all rows of a commit were loaded. */
  def loaded(as: At): Unit = {
    at = as
    readCatalogue()
  }

  private def catalogue: Family = byId(CatalogueId)

  private def undo(changes: Seq[(Family, Changes)]): Unit = {
    changes.foreach { case (family, done) => family.undo(done) }
    if (changes.exists(_._1.id == CatalogueId)) readCatalogue()
  }

  private def readCatalogue(): Unit = {
    named.clear()
    named(Default) = Named(byId(DefaultId), internal = false)
    catalogue.all.foreach { entry =>
      val (id, internal) = decode(entry.value)
      named(new String(entry.key, UTF_8)) = Named(byId.getOrElseUpdate(id, new Family(id)), internal)
    }
  }
}

object StateMap {
  val Default: String = "default"
  val IdBytes = 2
  private val DefaultId = 0
  private val CatalogueId = 0xffff
  private val BytesPerKey = 24 + 8 + 2 * 16

  private final case class Named(family: Family, internal: Boolean)

  /** A committed transaction: where it started, and how to get back there. */
  private final case class Sealed(from: At, changes: Seq[(Family, Changes)])

  /** Whoever names no commit id means whatever is there as that version. */
  private def matches(there: At, wanted: At): Boolean =
    there.version == wanted.version && (wanted.commitId.isEmpty || wanted.commitId == there.commitId)

  private def encode(id: Int, internal: Boolean): Array[Byte] =
    ByteBuffer.allocate(3).putShort(id.toShort).put((if (internal) 1 else 0).toByte).array

  private def decode(value: Array[Byte]): (Int, Boolean) = {
    val buffer = ByteBuffer.wrap(value)
    (buffer.getShort & 0xffff, buffer.get == 1)
  }
}
