package ckpt.spark

import java.nio.ByteBuffer

/** What a transaction changed, as the row block and the key block of a commit. What it undid itself is left out. */
final class ChangedRows(changes: Seq[(Int, Changes)]) extends CommitRows {
  private var puts = 0
  private var deletes = 0
  private var keyBytes = 0L
  private var valueBytes = 0L

  foreach { (_, entry, isPut) =>
    keyBytes += StateMap.IdBytes + entry.key.length
    if (isPut) {
      puts += 1
      valueBytes += entry.value.length
    } else deletes += 1
  }

  def numPuts: Int = puts
  def numDeletes: Int = deletes

  override val bytes: Long = 4 + 8L * puts + 4 + 4L * deletes + keyBytes + valueBytes

  override def write(out: ByteBuffer): Unit = {
    out.putInt(puts)
    foreach((_, entry, isPut) => if (isPut) out.putInt(StateMap.IdBytes + entry.key.length))
    foreach((_, entry, isPut) => if (isPut) out.putInt(entry.value.length))
    foreach((id, entry, isPut) => if (isPut) putKey(out, id, entry))
    foreach((_, entry, isPut) => if (isPut) out.put(entry.value))
    out.putInt(deletes)
    foreach((_, entry, isPut) => if (!isPut) out.putInt(StateMap.IdBytes + entry.key.length))
    foreach((id, entry, isPut) => if (!isPut) putKey(out, id, entry))
  }

  /** The id is big endian whatever the frame is, so that stored keys sort by family. */
  private def putKey(out: ByteBuffer, id: Int, entry: Entry): Unit =
    out.put((id >> 8).toByte).put(id.toByte).put(entry.key)

  private def foreach(row: (Int, Entry, Boolean) => Unit): Unit = for ((id, changed) <- changes) {
    var i = 0
    while (i < changed.entries.length) {
      val entry = changed.entries(i)
      if (entry.value != null) row(id, entry, true)
      else if (changed.before(i) != null) row(id, entry, false)
      i += 1
    }
  }
}
