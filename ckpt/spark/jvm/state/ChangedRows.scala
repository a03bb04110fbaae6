package ckpt.spark.state

import java.nio.ByteBuffer

import scala.collection.mutable

import ckpt.spark.wire.CommitRows

/** What a transaction changed, as the row block and the key block of a commit. What it undid itself is left out. */
final class ChangedRows(changes: Seq[(Int, Changes)]) extends CommitRows {
  import ChangedRows._

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

  override val bytes: Long = EmptyBytes + 8L * puts + 4L * deletes + keyBytes + valueBytes

  /** The same in parts that are no longer than that, apart from a row that is longer by itself. */
  override def parts(mostBytes: Long): Seq[ChangedRows] =
    if (bytes <= mostBytes) Seq(this)
    else {
      val done = new mutable.ArrayBuffer[ChangedRows]
      var part = new mutable.ArrayBuffer[(Int, Changes)]
      var partBytes = EmptyBytes
      for ((id, changed) <- changes; i <- changed.entries.indices) {
        val entry = changed.entries(i)
        val rowBytes = 8L + StateMap.IdBytes + entry.key.length + (if (entry.value == null) 0 else entry.value.length)
        if (part.nonEmpty && partBytes + rowBytes > mostBytes) {
          done += new ChangedRows(part.toSeq)
          part = new mutable.ArrayBuffer[(Int, Changes)]
          partBytes = EmptyBytes
        }
        if (part.isEmpty || part.last._1 != id) part += (id -> new Changes)
        part.last._2.entries += entry
        part.last._2.before += changed.before(i)
        partBytes += rowBytes
      }
      (done += new ChangedRows(part.toSeq)).toSeq
    }

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

object ChangedRows {
  private val EmptyBytes = 8L
}
