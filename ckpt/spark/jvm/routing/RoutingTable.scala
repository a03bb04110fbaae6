package ckpt.spark.routing

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.US_ASCII
import java.util.Arrays

import scala.collection.mutable

/**
 * Which partition has which key: entries for the hashes of a few keys, for all others the hash modulo the number of
 * active partitions. A table is read from the bytes that `ckpt/rebalance/table.py` draws, and never changes.
 *
 * Tasks get a table with their code, so it travels as these bytes.
 */
final class RoutingTable private (bytes: Array[Byte], partitions: Int) extends Serializable {
  import RoutingTable._

  // Only who places keys reads the entries: a store whose keys stay asks for the head at most.
  @transient private lazy val content: Content = read(bytes)

  private def head: ByteBuffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)

  def version: Long = head.getLong(VersionAt)

  /** How many partitions have keys: those with a number below this one. */
  def instances: Int = head.getInt(InstancesAt)

  /** Whether this is how Spark itself places keys. */
  def isHash: Boolean = size == 0 && instances == partitions

  /** How many keys have an entry. */
  def size: Int = head.getInt(EntriesAt)

  /** The partition of the keys with this hash. */
  def place(hash: Int): Int = content.place(hash)

  /** What a commit notes of the table it was made under; null where keys are placed as Spark places them. */
  def stamp: Array[Byte] = if (isHash) null else bytes

  /** Whether a partition has to give up keys when `next` follows this table. */
  def takesFrom(source: Int, next: RoutingTable): Boolean =
    changedEntries(next).exists(place(_) == source) ||
      (instances != next.instances && baseTargets(source, next).exists(_ != source))

  /** The partitions that may have keys now which are at `target` when `next` follows this table. */
  def sourcesOf(target: Int, next: RoutingTable): Seq[Int] = {
    val found = mutable.BitSet()
    changedEntries(next).foreach(hash => if (next.place(hash) == target) found += place(hash))
    if (instances != next.instances) found ++= next.baseTargets(target, this)
    found -= target
    found.toSeq
  }

  /** The hashes with an entry here or there whose place differs. */
  private def changedEntries(next: RoutingTable): Iterator[Int] =
    (content.hashes.iterator ++ next.content.hashes.iterator).filter(hash => place(hash) != next.place(hash))

  /** Where a hash that has no entry may be under `next` if it is at `source` here: both are its remainders. */
  private def baseTargets(source: Int, next: RoutingTable): Iterator[Int] =
    if (source >= instances) Iterator.empty
    else {
      val step = commonDivisor(instances, next.instances)
      Iterator.range(source % step, next.instances, step)
    }

  override def equals(other: Any): Boolean = other match {
    case table: RoutingTable => Arrays.equals(stamp, table.stamp)
    case _ => false
  }

  override def hashCode: Int = Arrays.hashCode(stamp)

  override def toString: String = s"$size ${if (size == 1) "route" else "routes"}"
}

object RoutingTable {
  private val Magic = "ckrt".getBytes(US_ASCII)
  private val Format = 1
  private val VersionAt = 6
  private val InstancesAt = VersionAt + 16
  private val EntriesAt = InstancesAt + 4
  private val HeadBytes = InstancesAt + 5 * 4
  private val ChecksumBytes = 8
  private val LargestShareTaken = 0.5

  /** The table of these bytes; an IllegalArgumentException says why it cannot be used for so many partitions. */
  def of(bytes: Array[Byte], partitions: Int): RoutingTable = {
    val table = new RoutingTable(bytes, partitions)
    table.content
    require(table.instances <= partitions,
      s"a routing table for ${table.instances} partitions does not fit a query with $partitions")
    table
  }

  /** How Spark places keys: no entries. */
  def hashed(partitions: Int): RoutingTable = {
    val out = ByteBuffer.allocate(HeadBytes + ChecksumBytes).order(ByteOrder.LITTLE_ENDIAN)
    out.put(Magic).putShort(Format.toShort).putLong(0).putLong(0).putInt(partitions)
    new RoutingTable(out.array, partitions) // it is written nowhere, so it needs no checksum
  }

  /** Slots are a hash in the upper half and its partition, counted from 1, in the lower; zero is an empty slot. */
  private final class Content(instances: Int, val hashes: Array[Int], targets: Array[Int]) {
    private val slots =
      new Array[Long](Integer.highestOneBit(math.max(8, (hashes.length / LargestShareTaken).toInt)) << 1)
    private val mask = slots.length - 1

    for (i <- hashes.indices) {
      var at = hashes(i) & mask
      while (slots(at) != 0) at = (at + 1) & mask
      slots(at) = (hashes(i).toLong << 32) | (targets(i) + 1)
    }

    def place(hash: Int): Int = {
      var at = hash & mask
      while (slots(at) != 0) {
        if ((slots(at) >> 32).toInt == hash) return slots(at).toInt - 1
        at = (at + 1) & mask
      }
      Math.floorMod(hash, instances)
    }
  }

  private def read(bytes: Array[Byte]): Content = {
    val in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
    require(bytes.length >= HeadBytes + ChecksumBytes && Arrays.equals(bytes, 0, Magic.length, Magic, 0, Magic.length),
      s"${bytes.length} bytes are no routing table")
    in.position(Magic.length)
    val format = in.getShort()
    require(format == Format, s"a routing table of format $format is not known here, only $Format")
    in.position(InstancesAt) // behind the version and the first batch that it is for
    val instances = in.getInt()
    val entries = in.getInt()
    in.getInt() // columns of backups
    val splits = in.getInt()
    in.getInt()
    require(instances > 0 && entries >= 0 && 12L * entries <= in.remaining - ChecksumBytes,
      "a routing table is shorter than it says")
    require(splits == 0, "a routing table that splits keys cannot be used by this version of ckpt")
    // Of a key from Spark the upper half is zero.
    val hashes = Array.fill(entries)(in.getLong().toInt)
    val targets = Array.fill(entries)(in.getInt())
    require(targets.forall(target => target >= 0 && target < instances), "a routing table names a partition that is not there")
    new Content(instances, hashes, targets)
  }

  @scala.annotation.tailrec
  private def commonDivisor(a: Int, b: Int): Int = if (b == 0) a else commonDivisor(b, a % b)
}
