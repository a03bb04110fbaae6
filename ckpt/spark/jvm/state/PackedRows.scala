package ckpt.spark.state

import java.util.Arrays

import org.apache.spark.unsafe.Platform

/**
 * Rows as they were loaded, side by side in a few arrays: the garbage collector sees some of them and not three objects
 * for each key, and a restart is not spent on making them. A row is found by its key until it is taken.
 *
 * A row is the lengths of key and value, four bytes each, key, and value. A slot is the hash of a key, a mark for rows
 * that were taken, and the row's place, counted from one: zero is an empty slot.
 */
final class PackedRows {
  import PackedRows._

  private var chunks = new Array[Array[Byte]](1)
  private var last = 0 // the chunk that is being filled
  private var filled = 0 // bytes of it
  private var slots = new Array[Long](SmallestCapacity)
  private var rows = 0
  private var takenRows = 0
  chunks(0) = new Array[Byte](SmallestChunkBytes)

  def size: Int = rows
  def taken: Int = takenRows

  /** Adds a row whose key is not there; false if it is too long to be packed, or if nothing more can be. */
  def add(hash: Int, bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Boolean = {
    val needed = HeadBytes.toLong + keyBytes + valueBytes
    if (needed > LongestRowBytes || !hasRoom(needed.toInt)) return false
    val chunk = chunks(last)
    setInt(chunk, filled, keyBytes)
    setInt(chunk, filled + 4, valueBytes)
    System.arraycopy(bytes, key, chunk, filled + HeadBytes, keyBytes)
    System.arraycopy(bytes, value, chunk, filled + HeadBytes + keyBytes, valueBytes)
    if ((rows + 1) * 5L > slots.length * 3L) grow()
    place(slots, (hash.toLong << HashShift) | (last.toLong << ChunkShift | filled) + 1)
    filled += needed.toInt
    rows += 1
    true
  }

  /** Nothing more comes: what the last chunk does not need is given back. */
  def trim(): Unit = if (filled < chunks(last).length) chunks(last) = Arrays.copyOf(chunks(last), filled)

  /** The slot of a key; negative if there is none. */
  def find(hash: Int, key: Array[Byte]): Int = {
    val slots = this.slots
    val mask = slots.length - 1
    var at = hash & mask
    while (slots(at) != 0) {
      if (hashIn(slots(at)) == hash && hasKey(slots(at), key)) return at
      at = (at + 1) & mask
    }
    -1
  }

  def isTaken(slot: Int): Boolean = (slots(slot) & Taken) != 0

  /** The row is somewhere else from now on. */
  def take(slot: Int): Unit = if (!isTaken(slot)) {
    slots(slot) |= Taken
    takenRows += 1
  }

  /** The row of a slot as an entry of its own. */
  def entry(slot: Int): LoadedEntry = {
    val row = slots(slot)
    val chunk = chunkOf(row)
    val at = offsetIn(row)
    val key = at + HeadBytes
    val value = key + intAt(chunk, at)
    new LoadedEntry(
      Arrays.copyOfRange(chunk, key, value), hashIn(row), Arrays.copyOfRange(chunk, value, value + intAt(chunk, at + 4)))
  }

  /** The first slot with a row, of this one and those after it; negative if there is none. */
  def occupied(from: Int): Int = {
    var at = from
    while (at < slots.length && slots(at) == 0) at += 1
    if (at < slots.length) at else -1
  }

  private def hasKey(row: Long, key: Array[Byte]): Boolean = {
    val chunk = chunkOf(row)
    val at = offsetIn(row)
    intAt(chunk, at) == key.length &&
      Arrays.equals(chunk, at + HeadBytes, at + HeadBytes + key.length, key, 0, key.length)
  }

  private def chunkOf(row: Long): Array[Byte] = chunks((placeIn(row) >>> ChunkShift).toInt)

  private def offsetIn(row: Long): Int = (placeIn(row) & (ChunkBytes - 1)).toInt

  private def hasRoom(needed: Int): Boolean = {
    val length = chunks(last).length
    if (filled + needed > length) {
      if (length < ChunkBytes && filled + needed <= ChunkBytes) {
        chunks(last) = Arrays.copyOf(chunks(last), math.min(math.max(2 * length, filled + needed), ChunkBytes))
      } else if (last + 1 == MostChunks) return false
      else {
        last += 1
        if (last == chunks.length) chunks = Arrays.copyOf(chunks, 2 * last)
        chunks(last) = new Array[Byte](ChunkBytes)
        filled = 0
      }
    }
    true
  }

  private def grow(): Unit = {
    val wider = new Array[Long](2 * slots.length)
    var at = 0
    while (at < slots.length) {
      if (slots(at) != 0) place(wider, slots(at))
      at += 1
    }
    slots = wider
  }
}

object PackedRows {
  private val HeadBytes = 8
  // As long as the parts in which rows arrive, and too short to be humongous.
  private val ChunkShift = 18
  private val ChunkBytes = 1 << ChunkShift
  private val SmallestChunkBytes = 1 << 10
  private val LongestRowBytes = 8 << 10
  private val MostChunks = 1 << 12
  private val SmallestCapacity = 16

  private val HashShift = 32
  private val Taken = 1L << 31
  private val PlaceMask = Taken - 1

  private def hashIn(row: Long): Int = (row >>> HashShift).toInt
  private def placeIn(row: Long): Long = (row & PlaceMask) - 1

  private def place(slots: Array[Long], row: Long): Unit = {
    val mask = slots.length - 1
    var at = hashIn(row) & mask
    while (slots(at) != 0) at = (at + 1) & mask
    slots(at) = row
  }

  private def setInt(bytes: Array[Byte], at: Int, value: Int): Unit =
    Platform.putInt(bytes, Platform.BYTE_ARRAY_OFFSET.toLong + at, value)

  private def intAt(bytes: Array[Byte], at: Int): Int = Platform.getInt(bytes, Platform.BYTE_ARRAY_OFFSET.toLong + at)
}
