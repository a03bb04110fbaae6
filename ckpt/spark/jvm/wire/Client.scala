package ckpt.spark.wire

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.ConcurrentLinkedDeque

/**
 * Requests to one sidecar, as docs/protocol.md has them; one connection for each request that is under way. After an
 * `IOException` that is no `SidecarError` nothing is known about the request; each may be repeated.
 */
final class Client(endpoint: Endpoint, limitMs: Long) {
  import Client._
  import Connection.{getString, putString, stringBytes}

  private val idle = new ConcurrentLinkedDeque[Connection]

  /**
   * Durably adds one commit; a second time with the same id does nothing. Returns how often the backend made something
   * durable since it answered a commit before, of whichever client.
   */
  def commit(namespace: String, version: Long, base: Option[String], commitId: String, rows: CommitRows): Long = {
    var durableWrites = 0L
    val on = base.getOrElse("")
    val headBytes = stringBytes(namespace) + 8 + stringBytes(on) + stringBytes(commitId)
    withConnection { connection =>
      val parts = rows.parts(math.min(CommitPartBytes, connection.longestBody - headBytes))
      parts.init.foreach(part => connection.ask(Stage, part.bytes)(part.write)(_ => (), _ => ()))
      connection.ask(Commit, headBytes + parts.last.bytes) { out =>
        putString(out, namespace)
        out.putLong(version)
        putString(out, on)
        putString(out, commitId)
        parts.last.write(out)
      }(_ => (), { body =>
        getString(body)
        durableWrites = body.getInt & 0xffffffffL
      })
    }
    durableWrites
  }

  /** Hands over every row of one commit, block by block, in a buffer that is used again. */
  def load(namespace: String, version: Long, commitId: Option[String])(part: RowBlock => Unit): Unit = {
    val id = commitId.getOrElse("")
    ask(Load, stringBytes(namespace) + 8 + stringBytes(id) + 4) { out =>
      putString(out, namespace)
      out.putLong(version)
      putString(out, id)
      out.putInt(PartBytes)
    }(body => part(new RowBlock(body)))
  }

  /** Hands over the rows of those keys that exist in one commit, as `load` does. */
  def get(namespace: String, version: Long, commitId: Option[String], keys: Seq[Array[Byte]])(
      part: RowBlock => Unit): Unit = {
    val id = commitId.getOrElse("")
    val keyBytes = keys.map(4L + _.length).sum
    ask(Get, stringBytes(namespace) + 8 + stringBytes(id) + 4 + keyBytes) { out =>
      putString(out, namespace)
      out.putLong(version)
      putString(out, id)
      out.putInt(keys.length)
      keys.foreach(key => out.putInt(key.length))
      keys.foreach(key => out.put(key))
    }(body => part(new RowBlock(body)))
  }

  /** The commits that may be named, by version, and the id of the tip; none of either if the namespace is unknown. */
  def history(namespace: String): History = {
    var history = History(Nil, "")
    ask(HistoryOf, stringBytes(namespace))(putString(_, namespace))(last = { body =>
      val commits = Seq.fill(body.getInt())(CommitInfo(getString(body), body.getLong(), getString(body)))
      history = History(commits, getString(body))
    })
    history
  }

  def truncate(namespace: String, keepFrom: Long): Unit = ask(Truncate, stringBytes(namespace) + 8) { out =>
    putString(out, namespace)
    out.putLong(keepFrom)
  }()

  def close(): Unit = {
    var connection = idle.poll()
    while (connection != null) {
      connection.close()
      connection = idle.poll()
    }
  }

  private def ask(operation: Byte, bodyBytes: Long)(fill: ByteBuffer => Unit)(
      part: ByteBuffer => Unit = _ => (),
      last: ByteBuffer => Unit = _ => ()): Unit =
    withConnection(_.ask(operation, bodyBytes)(fill)(part, last))

  /** A sidecar that refuses new connections counts as ended. No request was sent, so the caller may use another. */
  private def connect(): Connection =
    try new Connection(endpoint, lifeline = false, limitMs)
    catch {
      case refused: SidecarError if refused.kind == SidecarError.Unavailable =>
        throw new IOException(s"$endpoint refused a connection: ${refused.getMessage}", refused)
    }

  private def withConnection(use: Connection => Unit): Unit = {
    val pooled = idle.poll()
    val connection = if (pooled != null) pooled else connect()
    var usable = false
    try {
      use(connection)
      usable = true
    } catch {
      case answered: SidecarError =>
        usable = true
        throw answered
    } finally {
      // After any other failure half an answer may still arrive on this connection.
      if (usable && connection.isOpen) idle.push(connection) else connection.close()
    }
  }
}

/** One commit of a namespace; `base` is empty if what it builds on is forgotten, or if it builds on nothing. */
final case class CommitInfo(id: String, version: Long, base: String)

/** The commits of a namespace, and the id of its tip. */
final case class History(commits: Seq[CommitInfo], tip: String) {

  /** The tip: the commit that is read where no other is named. */
  def newest: Option[CommitInfo] = commits.find(_.id == tip)

  /** The commit of an id and those that it builds on, by version. */
  def chain(id: String): Map[Long, CommitInfo] = {
    val byId = commits.map(commit => commit.id -> commit).toMap
    Iterator.iterate(byId.get(id))(_.flatMap(commit => byId.get(commit.base)))
      .takeWhile(_.isDefined).flatten.map(commit => commit.version -> commit).toMap
  }
}

/** The rows of a commit as they are sent: a row block of puts and a key block of deletes. */
trait CommitRows {
  def bytes: Long

  /** The same in parts that are no longer than that where rows allow it; one at least. */
  def parts(mostBytes: Long): Seq[CommitRows]

  def write(out: ByteBuffer): Unit
}

/** Rows as they were received; the columns are read in place. */
final class RowBlock(body: ByteBuffer) {
  private val start = body.position()
  val count: Int = body.getInt(start)

  def foreach(row: RowReader): Unit = {
    val keyLengths = start + 4
    val valueLengths = keyLengths + 4 * count
    var key = valueLengths + 4 * count
    var value = key
    var i = 0
    while (i < count) {
      value += body.getInt(keyLengths + 4 * i)
      i += 1
    }
    i = 0
    while (i < count) {
      val keyBytes = body.getInt(keyLengths + 4 * i)
      val valueBytes = body.getInt(valueLengths + 4 * i)
      row.take(body.array, key, keyBytes, value, valueBytes)
      key += keyBytes
      value += valueBytes
      i += 1
    }
  }
}

/** Takes a row as the array that holds it, and where key and value are in that. No function: numbers would be boxed. */
trait RowReader {
  def take(bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit
}

object Client {
  // Less than half a region of a small heap: what is longer goes to the old generation at once.
  private val PartBytes = 256 << 10

  /** A longer commit is sent in parts: each is copied into a frame before it is sent. */
  private val CommitPartBytes = 32L << 20

  private val Commit: Byte = 2
  private val Load: Byte = 3
  private val Get: Byte = 4
  private val HistoryOf: Byte = 5
  private val Truncate: Byte = 6
  private val Stage: Byte = 10
}
