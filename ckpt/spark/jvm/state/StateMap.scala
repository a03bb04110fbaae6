package ckpt.spark.state

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{ArrayDeque, Arrays}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

/** Which commit a state is: its version, and its commit id where one is known. Version 0 is the empty state. */
final case class CommitRef(version: Long, commitId: Option[String])

object CommitRef {

  /** Whatever is the newest. */
  val Newest: CommitRef = CommitRef(-1, None)
}

/**
 * The working state of one store: one version at a time in maps that are changed in place. A transaction begins
 * with the first change and ends with `seal` or `revert`; sealed ones can be undone as long as they are retained, so
 * that a retry needs neither a copy of the state nor the backend.
 *
 * A stored key is the family's id (`u16`, big endian) and the key. Family 0 is the default one; the catalogue of all
 * is family 65535.
 */
final class StateMap {
  import StateMap._

  private var at = CommitRef(0, None)
  private val byId = mutable.LongMap[Family]() // each row that is loaded looks for its family: no boxes
  private val named = mutable.HashMap[String, Named]()
  private val undoable = new ArrayDeque[Sealed]
  private var disk: Disk = _ // where the families are; null: in memory
  @volatile private var remote: RemoteRows = _ // null: no row is in the backend only
  clear()

  def position: CommitRef = at

  def names: Set[String] = {
    if (isPartial) remote.load()
    named.keySet.toSet
  }

  def find(name: String): Option[Family] = named.get(name).map(_.family)

  /** Every family with its name and its row in the catalogue. */
  def families: Seq[(String, Family, Array[Byte])] = {
    if (isPartial) remote.load()
    named.iterator.map { case (name, known) => (name, known.family, known.row) }.toSeq
  }

  /** The routing table that the state was committed under; null if its keys are where Spark's hash places them. */
  def layout: Array[Byte] = catalogue.get(Catalogue.Layout)

  /** The family of a name, made now if there is none; the catalogue describes it as it is given here. */
  def create(name: String, as: Description): Family = {
    learn(name)
    val known = named.get(name)
    val id = known.map(_.family.id).getOrElse(byId.valuesIterator.map(_.id).filter(_ != Catalogue.Id).max + 1)
    require(id < Catalogue.Id, s"more than ${Catalogue.Id} column families in one store")
    for (before <- known if before.family.numKeys > 0 && before.multiple != as.multiple) {
      throw new IllegalStateException(s"column family $name was written with ${values(before.multiple)} for a key, " +
        s"and cannot be read with ${values(as.multiple)}; use the query that wrote it")
    }
    if (!known.exists(before => Arrays.equals(before.row, as.row(id)))) {
      catalogue.put(name.getBytes(UTF_8), as.row(id))
      readCatalogue()
    }
    named(name).family
  }

  /** Removes a family with all its keys; false if there is none. */
  def drop(name: String): Boolean = {
    learn(name)
    named.get(name).exists { found =>
      found.family.all.foreach(entry => found.family.remove(entry.key))
      catalogue.remove(name.getBytes(UTF_8))
      readCatalogue()
      true
    }
  }

  def numKeys: Long = named.valuesIterator.filterNot(_.internal).map(_.family.numKeys).sum

  /** An estimate: the bytes of keys and values in memory, also of versions before, and the objects that hold them. */
  def memoryBytes: Long =
    byId.valuesIterator.map(_.memoryBytes).sum + undoable.iterator.asScala.map(_.undoBytes).sum

  /** How much of it could be moved to disk. */
  def spillableBytes: Long = movable.map(_.memoryBytes).sum

  /** What the families on disk would take in memory. */
  def spilledBytes: Long = if (!isSpilled) 0 else movable.map(_.sizeBytes).sum

  def spilledKeys: Long = if (!isSpilled) 0 else movable.map(_.numKeys).sum

  /** Whether the disk that it was moved to has failed: then it is of no use and has to be read anew. */
  def isLost: Boolean = isSpilled && disk.isLost

  /** Moves what can be moved to disk, between transactions; what is made or loaded later goes there too. */
  def spill(to: Disk): Unit = if (!isSpilled) {
    disk = to
    movable.foreach(_.spillTo(disk))
  }

  def isSpilled: Boolean = disk != null

  /** Moves everything back to memory, between transactions. */
  def bringBack(): Unit = if (isSpilled) {
    movable.foreach(_.bringBack())
    forgetSpilled()
  }

  /** What the open transaction changed, family by family. */
  def changes: Seq[(Int, Changes)] =
    byId.valuesIterator.filter(_.changes.entries.nonEmpty).map(f => (f.id, f.changes)).toSeq

  /** Notes in the catalogue, as part of the open transaction, where it comes from, its table and how many keys it leaves. */
  def stamp(provenance: Array[Byte], layout: Array[Byte]): Unit = {
    note(Catalogue.Provenance, provenance)
    note(Catalogue.Layout, layout)
    // Of a state that is not complete the names may not be known.
    val families = if (isPartial) movable else named.valuesIterator.map(_.family)
    note(Catalogue.LiveKeys, Catalogue.liveKeys(families.toSeq))
  }

  /** Keeps what the transaction did as `to`; at most `retain` transactions stay undoable. */
  def seal(to: CommitRef, retain: Int): Unit = {
    val changes = byId.valuesIterator.map(f => f -> f.seal()).filter(_._2.entries.nonEmpty).toSeq
    undoable.addLast(Sealed(at, changes, changes.map(_._2.undoBytes).sum))
    while (undoable.size > retain) undoable.removeFirst()
    at = to
  }

  /** Undoes the open transaction. */
  def revert(): Unit = {
    byId.valuesIterator.foreach(_.revert())
    readCatalogue()
  }

  /** Goes back to an earlier commit if the transactions since then are retained; says whether it is there now. */
  def rollBackTo(wanted: CommitRef): Boolean = {
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
    forgetSpilled()
    remote = null
    byId.clear()
    Seq(DefaultId, Catalogue.Id).foreach(id => byId(id) = new Family(id))
    named.clear()
    undoable.clear()
    at = CommitRef(0, None)
    readCatalogue()
  }

  /**
   * All rows of a commit come from now on, one by one with `load`, and `loaded` ends it. A state that stands at that
   * commit keeps what it knows of it; any other state is forgotten. A load that broke off begins here again.
   */
  def loading(): Unit = if (isPartial) byId.valuesIterator.foreach(_.loading()) else clear()

  /** Takes one row. */
  def load(familyId: Int, bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit =
    familyOf(familyId).load(bytes, key, keyBytes, value, valueBytes)

  /** Says that all rows of a commit were loaded. */
  def loaded(as: CommitRef): Unit = {
    byId.valuesIterator.foreach(_.loaded())
    remote = null
    at = as
    readCatalogue()
  }

  /** Whether rows are still in the backend. */
  def isPartial: Boolean = remote != null

  /**
   * Stands at a commit whose rows stay in the backend until they are asked for; `families` are asked for soon. False if
   * the commit does not say how many rows there are.
   */
  def begin(as: CommitRef, reader: CommitReader, families: Iterable[String]): Boolean = {
    clear()
    val wanted = Seq(Catalogue.LiveKeys, Catalogue.Provenance, Catalogue.Layout) ++ families.map(_.getBytes(UTF_8))
    val rows = reader.get(as, wanted.map(storedKey(Catalogue.Id, _)))
    if (rows.head == null) false
    else {
      val keys = Catalogue.readLiveKeys(rows.head)
      at = as
      remote = new RemoteRows(this, reader, keys.map(_._2).sum)
      keys.foreach { case (id, count) => familyOf(id).begin(count, remote) }
      catalogue.begin(0, remote)
      wanted.zip(rows).foreach { case (key, row) => catalogue.remember(key, row) }
      readCatalogue()
      true
    }
  }

  private def learn(name: String): Unit =
    if (isPartial && !named.contains(name) && catalogue.get(name.getBytes(UTF_8)) != null) readCatalogue()

  private def catalogue: Family = byId(Catalogue.Id)

  /** Null: there is nothing to note. */
  private def note(key: Array[Byte], value: Array[Byte]): Unit =
    if (!Arrays.equals(catalogue.get(key), value)) {
      if (value == null) catalogue.remove(key) else catalogue.put(key, value)
    }

  /** All but the catalogue, which is small and read whole. */
  private def movable: Iterator[Family] = byId.valuesIterator.filter(_.id != Catalogue.Id)

  private def familyOf(id: Int): Family = byId.getOrElseUpdate(id, {
    val made = new Family(id)
    if (isSpilled) made.spillTo(disk)
    made
  })

  private def forgetSpilled(): Unit = if (isSpilled) {
    disk.drop()
    disk = null
  }

  private def undo(changes: Seq[(Family, Changes)]): Unit = {
    changes.foreach { case (family, done) => family.undo(done) }
    if (changes.exists(_._1.id == Catalogue.Id)) readCatalogue()
  }

  private def readCatalogue(): Unit = {
    val before = named.clone()
    named.clear()
    // Until the first commit nothing is written about it, but it is there.
    named(Default) = Named(byId(DefaultId), internal = false, multiple = false, row = null)
    for (entry <- catalogue.here if Catalogue.isFamily(entry.key)) {
      val name = new String(entry.key, UTF_8)
      named(name) = before.get(name).filter(_.row eq entry.value).getOrElse {
        val row = Catalogue.decode(name, entry.value)
        Named(familyOf(row.id), row.internal, row.multiple, entry.value)
      }
    }
    named.valuesIterator.foreach(found => found.family.holdLists(found.multiple))
  }
}

object StateMap {
  val Default: String = "default"
  val IdBytes = 2
  private val DefaultId = 0

  /** A key as the backend has it, which then sorts by family. */
  def storedKey(familyId: Int, key: Array[Byte]): Array[Byte] =
    ByteBuffer.allocate(IdBytes + key.length).putShort(familyId.toShort).put(key).array

  /** The family of a stored key. */
  def familyId(bytes: Array[Byte], at: Int): Int = ((bytes(at) & 0xff) << 8) | (bytes(at + 1) & 0xff)

  private final case class Named(family: Family, internal: Boolean, multiple: Boolean, row: Array[Byte])

  /** A committed transaction: where it started, and how to get back there. */
  private final case class Sealed(from: CommitRef, changes: Seq[(Family, Changes)], undoBytes: Long)

  /** Without a commit id any commit of that version is meant. */
  private def matches(there: CommitRef, wanted: CommitRef): Boolean =
    there.version == wanted.version && (wanted.commitId.isEmpty || wanted.commitId == there.commitId)

  private def values(multiple: Boolean): String = if (multiple) "several values" else "one value"
}
