package ckpt.spark.routing

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays

import scala.collection.mutable

import ckpt.spark.state._

/** How many rows came into a store and how many left it when a batch began. */
final case class Migrated(arrived: Long, left: Long)

/** The rows of another partition's store as of the version that this batch builds on. */
final case class Sibling(namespace: String, reader: CommitReader, at: CommitRef)

/**
 * Makes the state that was committed under one table the state that a batch under another begins with: rows of keys that
 * are placed elsewhere now are removed, and those of keys that are placed here now come from the commits of the stores
 * where they were. Both are part of the batch's transaction, in this store as in the others: as of every version, a key
 * is in one store.
 *
 * @param keysOf finds partition keys, given what each family of the store holds
 * @param encode how the rows of a family are encoded
 * @param sibling the store of another partition
 */
final class Migration(
    rows: StateMap,
    namespace: String,
    partition: Int,
    from: RoutingTable,
    to: RoutingTable,
    keysOf: (String => Option[Description]) => PartitionKeys,
    encode: (String, Description) => Encoding,
    sibling: Int => Sibling) {

  private val families = mutable.HashMap[String, Placed]()
  private val keys = keysOf(name => families.get(name).map(_.description))

  def run(): Migrated = {
    val sources = from.sourcesOf(partition, to)
    val gives = from.takesFrom(partition, to)
    if (gives || sources.nonEmpty) rows.families.foreach { case (name, family, row) => place(name, family, row) }
    Migrated(left = if (gives) giveUp() else 0, arrived = sources.map(source => take(source, sibling(source))).sum)
  }

  private def giveUp(): Long = families.valuesIterator.map { placed =>
    val leaving = new mutable.ArrayBuffer[Array[Byte]]
    placed.family.all.foreach { entry =>
      if (to.place(hashAt(placed, entry.key, partition, namespace)) != partition) leaving += entry.key
    }
    leaving.foreach(placed.family.remove)
    leaving.length.toLong
  }.sum

  /**
   * Rows come in no order: those of a family that this store does not know wait until all names have come, for what a
   * family holds may depend on another one.
   */
  private def take(from: Int, there: Sibling): Long = {
    val byId = mutable.LongMap[Placed]()
    val unknown = new mutable.ArrayBuffer[(Array[Byte], Array[Byte])]
    val nameless = new mutable.ArrayBuffer[(Int, Array[Byte], Array[Byte])]
    var arrived = 0L

    def learn(key: Array[Byte], row: Array[Byte]): Unit = {
      val name = new String(key, UTF_8)
      byId(Catalogue.decode(name, row).id) = families.getOrElse(name, {
        place(name, rows.create(name, Catalogue.describe(name, row)), row)
      })
    }

    def arrive(placed: Placed, key: Array[Byte], value: => Array[Byte]): Unit =
      if (to.place(hashAt(placed, key, from, there.namespace)) == partition) {
        placed.family.put(key, value)
        arrived += 1
      }

    val known = families.keys.toSeq.map(_.getBytes(UTF_8))
    val found = there.reader.get(there.at, (Catalogue.Layout +: known).map(StateMap.storedKey(Catalogue.Id, _)))
    requireLayout(found.head, there.namespace)
    known.zip(found.tail).foreach { case (name, row) => if (row != null) learn(name, row) }
    // A load that breaks off is done again; to put a row twice is to put it once.
    there.reader.foreach(there.at) { arrived = 0; unknown.clear(); nameless.clear() } { (id, bytes, key, keyBytes, value, valueBytes) =>
      val ownKey = Arrays.copyOfRange(bytes, key, key + keyBytes)
      def ownValue: Array[Byte] = Arrays.copyOfRange(bytes, value, value + valueBytes)
      if (id == Catalogue.Id) {
        if (Catalogue.isFamily(ownKey)) unknown += ((ownKey, ownValue))
      } else byId.get(id) match {
        case Some(placed) => arrive(placed, ownKey, ownValue)
        case None => nameless += ((id, ownKey, ownValue))
      }
    }
    unknown.foreach { case (key, row) => learn(key, row) }
    nameless.foreach { case (id, key, value) => arrive(byId(id), key, value) }
    arrived
  }

  private def place(name: String, family: Family, row: Array[Byte]): Placed = {
    val description = Catalogue.describe(name, row)
    val encoding = encode(name, description)
    // A family can be put in order only before the transaction changes it.
    if (encoding.ordered) family.keepOrdered()
    val placed = new Placed(family, description, keys.of(name, encoding))
    families(name) = placed
    placed
  }

  /** The hash of a row, which is where the last table put it; otherwise it was computed from rows of several places. */
  private def hashAt(placed: Placed, key: Array[Byte], partition: Int, namespace: String): Int = {
    val hash = placed.hashes.of(key)
    if (from.place(hash) != partition) throw new MisplacedState(
      s"$namespace holds a row whose key belongs to partition ${from.place(hash)} by its table (version ${from.version}): " +
        "the state was changed by a query that placed keys otherwise; begin with an earlier checkpoint and backup")
    hash
  }

  private def requireLayout(found: Array[Byte], namespace: String): Unit =
    if (!Arrays.equals(found, from.stamp)) throw new MisplacedState(
      s"$namespace was committed under another routing table than ${this.namespace} as of the same version; the state " +
        "was changed by a query that placed keys otherwise; begin with an earlier checkpoint and backup")

  /** A family of this store; the row hashes say where its rows belong. */
  private final class Placed(val family: Family, val description: Description, rowHashes: => RowHashes) {
    lazy val hashes: RowHashes = rowHashes
  }
}

/** State that cannot have come from one query with its routing; nothing may be computed from it. */
final class MisplacedState(message: String) extends IllegalStateException(message)
