package ckpt.spark.spill

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.locks.ReentrantReadWriteLock

import scala.collection.mutable

import ckpt.spark.state.{Disk, Index, OrderedKeys}
import ckpt.spark.wire.Settings
import org.rocksdb._
import org.slf4j.LoggerFactory

/** State could not be moved to local disk, or be read from there. The backend has it: what was spilled is read anew. */
final class SpillError(message: String, cause: Throwable) extends IOException(message, cause)

/**
 * State of this executor that does not fit into memory, in one RocksDB for all its stores. It is never recovered from:
 * there is no write-ahead log, nothing is synchronised, and the folder goes with the process.
 *
 * After the first error all of it counts as lost, so that nothing is read from a broken disk. The next store that
 * spills begins another.
 */
final class Scratch private (folder: ScratchFolder, bufferBytes: Long) {
  import Scratch._

  private val inUse = new ReentrantReadWriteLock
  @volatile private var retired = false
  private val spaces = new AtomicInteger
  private val native = new mutable.ArrayBuffer[AbstractNativeReference]
  private val unlogged = owned(new WriteOptions().setDisableWAL(true))
  private val db = open()

  /** Whether what was written here is gone. */
  def isLost: Boolean = retired

  /** A part of it for one store. */
  def space(): ScratchSpace = new ScratchSpace(this, spaces.incrementAndGet())

  private[spill] def get(key: Array[Byte]): Array[Byte] = using("read")(db.get(key))

  private[spill] def write(batch: WriteBatch): Unit = using("write")(db.write(unlogged, batch))

  private[spill] def delete(from: Array[Byte], until: Array[Byte]): Unit = using("write") {
    db.deleteFilesInRanges(db.getDefaultColumnFamily, java.util.List.of(from, until), false)
    db.deleteRange(unlogged, from, until)
  }

  /** Rows from `from` (inclusive) to `until` (exclusive): at most so many, and about so many bytes. */
  private[spill] def read(
      from: Array[Byte],
      until: Array[Byte],
      most: Int,
      mostBytes: Int): ScratchRows = using("read") {
    val bound = new Slice(until)
    val options = new ReadOptions().setIterateUpperBound(bound)
    val rows = db.newIterator(options)
    try {
      val keys, values = new mutable.ArrayBuffer[Array[Byte]](math.min(most, 64))
      var bytes = 0
      rows.seek(from)
      while (rows.isValid && keys.length < most && bytes < mostBytes) {
        keys += rows.key
        values += rows.value
        bytes += keys.last.length + values.last.length
        rows.next()
      }
      rows.status()
      new ScratchRows(keys.toArray, values.toArray, if (rows.isValid) rows.key else null)
    } finally {
      rows.close()
      options.close()
      bound.close()
    }
  }

  /** Ends it: nothing that was written is there any more. */
  def retire(): Unit = {
    inUse.writeLock.lock()
    try if (!retired) {
      retired = true
      db.close()
      native.reverseIterator.foreach(_.close())
      folder.delete()
    } finally inUse.writeLock.unlock()
  }

  /** Keeps the database open during an operation: using a closed one would end the JVM and not only the task. */
  private def using[A](what: String)(operation: => A): A = {
    val error =
      try {
        inUse.readLock.lock()
        try {
          if (retired) throw new SpillError(s"what was spilled to $folder is gone: its disk had failed", null)
          return operation
        } finally inUse.readLock.unlock()
      } catch {
        case e: RocksDBException => failed(what, e)
      }
    log.warn(s"${error.getMessage}; stores that had spilled there are read from the backend again")
    retire()
    throw error
  }

  private def failed(what: String, cause: RocksDBException): SpillError = new SpillError(
    s"cannot $what spilled state in $folder: ${cause.getMessage}; free space there, have spark.local.dir name a larger " +
      s"disk, or raise ${Settings.Memory}; nothing is lost, the backend has the state",
    cause)

  private def open(): RocksDB = {
    val cache = owned(new LRUCache(math.max(LeastCacheBytes, 2 * bufferBytes)))
    val blocks = new BlockBasedTableConfig()
      .setBlockCache(cache)
      .setFilterPolicy(owned(new BloomFilter(10)))
      .setBlockSize(8 << 10)
      .setCacheIndexAndFilterBlocks(true) // or they would take memory beside the cache
    val options = owned(new Options())
      .setCreateIfMissing(true)
      .setTableFormatConfig(blocks)
      .setWriteBufferSize(bufferBytes)
      .setMaxWriteBufferNumber(2)
      .setTargetFileSizeBase(math.max(bufferBytes, 8L << 20))
      .setCompressionType(CompressionType.LZ4_COMPRESSION)
      .setAvoidFlushDuringShutdown(true)
      .setMaxOpenFiles(256)
      .setInfoLogLevel(InfoLogLevel.ERROR_LEVEL)
      .setKeepLogFileNum(1)
    try RocksDB.open(options, folder.path.toString)
    catch {
      case e: RocksDBException =>
        native.reverseIterator.foreach(_.close())
        folder.delete()
        throw failed("keep", e)
    }
  }

  private def owned[A <: AbstractNativeReference](made: A): A = {
    native += made
    made
  }
}

object Scratch {
  private val log = LoggerFactory.getLogger(classOf[Scratch])
  private val LeastCacheBytes = 32L << 20
  private val LeastBufferBytes = 1L << 20
  private val MostBufferBytes = 32L << 20
  private var current: Scratch = _

  /** The one of this JVM. Its caches grow with the memory that stores may hold: four buffers of a 32nd of it each. */
  def of(memoryBytes: Long): Scratch = synchronized {
    if (current == null || current.isLost) {
      RocksDB.loadLibrary()
      val bufferBytes = math.max(LeastBufferBytes, math.min(MostBufferBytes, memoryBytes / 32))
      current = new Scratch(ScratchFolder.create(), bufferBytes)
    }
    current
  }
}

/** Rows in the order of their keys; `next` is the key of the first that is not among them. */
final class ScratchRows(val keys: Array[Array[Byte]], val values: Array[Array[Byte]], val next: Array[Byte]) {
  def count: Int = keys.length
}

/** What one store has in the scratch database. A key there: number of the space (`u32`), family (`u16`), key. */
final class ScratchSpace(scratch: Scratch, number: Int) extends Disk {
  import ScratchSpace._

  override def isLost: Boolean = scratch.isLost

  override def index(family: Int): Index = new SpilledIndex(this, family)

  def get(family: Int, key: Array[Byte]): Array[Byte] = scratch.get(keyOf(family, key))

  /** Rows of a family from `from` on, before `until` (null: to its end). */
  def read(family: Int, from: Array[Byte], until: Array[Byte], most: Int): ScratchRows = {
    val end = if (until == null) OrderedKeys.boundOf(keyOf(family, Array.emptyByteArray)) else keyOf(family, until)
    val rows = scratch.read(keyOf(family, from), end, most, PieceBytes)
    val next = if (rows.next == null) null else rows.next.drop(PrefixBytes)
    new ScratchRows(rows.keys.map(_.drop(PrefixBytes)), rows.values, next)
  }

  def writer(family: Int): ScratchWriter = new ScratchWriter(scratch, keyOf(family, _))

  override def drop(): Unit = if (!isLost) {
    try scratch.delete(prefixOf(number), prefixOf(number + 1))
    catch { case _: SpillError => } // then all is gone, which was wanted
  }

  private def keyOf(family: Int, key: Array[Byte]): Array[Byte] =
    ByteBuffer.allocate(PrefixBytes + key.length).putInt(number).putShort(family.toShort).put(key).array
}

object ScratchSpace {
  private val PrefixBytes = 6
  private val PieceBytes = 1 << 20

  private def prefixOf(number: Int): Array[Byte] = ByteBuffer.allocate(4).putInt(number).array
}

/** Writes in batches; what was not flushed may not be there yet. */
final class ScratchWriter(scratch: Scratch, keyOf: Array[Byte] => Array[Byte]) {
  private var batch: WriteBatch = _ // native memory, so only while something is to be written

  def put(key: Array[Byte], value: Array[Byte]): Unit = add(_.put(keyOf(key), value))

  def delete(key: Array[Byte]): Unit = add(_.delete(keyOf(key)))

  def flush(): Unit = if (batch != null) {
    try scratch.write(batch)
    finally {
      batch.close()
      batch = null
    }
  }

  private def add(change: WriteBatch => Unit): Unit = {
    if (batch == null) batch = new WriteBatch
    change(batch)
    if (batch.getDataSize >= ScratchWriter.BatchBytes) flush()
  }
}

object ScratchWriter {
  private val BatchBytes = 1 << 20
}
