package ckpt.spark

import java.io.{EOFException, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.SocketChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Path
import java.util.concurrent.ConcurrentLinkedDeque

/** The sidecar answered that it cannot do what was asked. The kinds are those of the protocol page. */
final class SidecarError(val kind: Int, message: String) extends IOException(message) {
  def isMissingVersion: Boolean = kind == SidecarError.MissingVersion
}

object SidecarError {
  val MissingVersion = 6
}

/**
 * Requests to one sidecar over a unix socket, as docs/protocol.md has them; one connection for each request that is
 * under way. After an `IOException` that is no `SidecarError` nothing is known about the request; each may be repeated.
 */
final class Client(socket: Path) {
  import Client._

  private val idle = new ConcurrentLinkedDeque[Connection]

  /** Durably adds one commit; a second time with the same id does nothing. */
  def commit(namespace: String, version: Long, base: Option[String], commitId: String, rows: CommitRows): Unit =
    withConnection { connection =>
      val bytes = stringBytes(namespace) + 8 + stringBytes(base.getOrElse("")) + stringBytes(commitId) + rows.bytes
      connection.send(Commit, bytes) { out =>
        putString(out, namespace)
        out.putLong(version)
        putString(out, base.getOrElse(""))
        putString(out, commitId)
        rows.write(out)
      }
      connection.receive(_ => ())
    }

  /** Hands over every row of one commit, block by block, in a buffer that is used again. */
  def load(namespace: String, version: Long, commitId: Option[String])(part: RowBlock => Unit): Unit =
    withConnection { connection =>
      val id = commitId.getOrElse("")
      connection.send(Load, stringBytes(namespace) + 8 + stringBytes(id) + 4) { out =>
        putString(out, namespace)
        out.putLong(version)
        putString(out, id)
        out.putInt(PartBytes)
      }
      connection.receive(body => part(new RowBlock(body)))
    }

  def truncate(namespace: String, keepFrom: Long): Unit = withConnection { connection =>
    connection.send(Truncate, stringBytes(namespace) + 8) { out =>
      putString(out, namespace)
      out.putLong(keepFrom)
    }
    connection.receive(_ => ())
  }

  /** A connection without requests, for as long as this process wants the sidecar to live. */
  def lifeline(): Connection = new Connection(socket, lifeline = true)

  def close(): Unit = {
    var connection = idle.poll()
    while (connection != null) {
      connection.close()
      connection = idle.poll()
    }
  }

  private def withConnection[A](use: Connection => A): A = {
    val pooled = idle.poll()
    val connection = if (pooled != null) pooled else new Connection(socket, lifeline = false)
    var usable = false
    try {
      val result = use(connection)
      usable = true
      result
    } catch {
      case answered: SidecarError =>
        usable = connection.isOpen
        throw answered
    } finally {
      // Whatever else went wrong, half an answer may still be under way on this connection.
      if (usable) idle.push(connection) else connection.close()
    }
  }
}

/** The rows of a commit as they are sent: a row block of puts and a key block of deletes. */
trait CommitRows {
  def bytes: Long
  def write(out: ByteBuffer): Unit
}

/** Rows as they were received; the columns are read in place. */
final class RowBlock(body: ByteBuffer) {
  private val start = body.position()
  val count: Int = body.getInt(start)

  /** Calls `row` with the buffer's array and where key and value are in it. */
  def foreach(row: (Array[Byte], Int, Int, Int, Int) => Unit): Unit = {
    val keyLengths = start + 4
    val valueLengths = keyLengths + 4 * count
    var key = valueLengths + 4 * count
    var value = key
    for (i <- 0 until count) value += body.getInt(keyLengths + 4 * i)
    for (i <- 0 until count) {
      val keyBytes = body.getInt(keyLengths + 4 * i)
      val valueBytes = body.getInt(valueLengths + 4 * i)
      row(body.array, key, keyBytes, value, valueBytes)
      key += keyBytes
      value += valueBytes
    }
  }
}

/** One socket to the sidecar; one request at a time. */
final class Connection(socket: Path, lifeline: Boolean) {
  import Client._

  private val channel = SocketChannel.open(StandardProtocolFamily.UNIX)
  private var requests = 0L
  private var received = buffer(64 << 10)

  /** The longest frame that the sidecar takes. */
  private val longestFrame: Long =
    try {
      channel.connect(UnixDomainSocketAddress.of(socket))
      val hello = buffer(10).put("CKPT".getBytes(UTF_8)).putShort(ProtocolVersion)
      hello.putShort((if (lifeline) 1 else 0).toShort).putShort(0)
      write(hello.flip())
      var longest = 0L
      receive(
        part = _ => throw new IOException("the sidecar answered the handshake in parts"),
        last = { body =>
          body.getShort()
          longest = body.getInt() & 0xffffffffL
        })
      longest
    } catch {
      case e: Throwable =>
        channel.close()
        throw e
    }

  def isOpen: Boolean = channel.isOpen

  def close(): Unit = channel.close()

  def send(operation: Byte, bodyBytes: Long)(fill: ByteBuffer => Unit): Unit = {
    val frameBytes = FrameHeaderBytes + bodyBytes
    if (frameBytes > math.min(longestFrame, MaxFrameBytes)) {
      throw new SidecarError(1, s"a request of $frameBytes bytes is longer than the sidecar takes ($longestFrame); " +
        "use more partitions, or smaller batches")
    }
    requests += 1
    val frame = buffer(4 + frameBytes.toInt).putInt(frameBytes.toInt).put(operation).putLong(requests)
    fill(frame)
    write(frame.flip())
  }

  /** Reads one answer: hands over the body of each part, then that of the last frame. */
  def receive(part: ByteBuffer => Unit, last: ByteBuffer => Unit = _ => ()): Unit = {
    var more = true
    while (more) {
      val body = readFrame()
      val status = body.get()
      val answered = body.getLong()
      if (answered != requests) throw new IOException(s"an answer to request $answered, not $requests")
      status match {
        case Done => last(body); more = false
        case Part => part(body)
        case Failed | FailedForGood =>
          if (status == FailedForGood) channel.close()
          throw new SidecarError(body.getShort & 0xffff, getString(body))
        case unknown => throw new IOException(s"an answer with the unknown status $unknown")
      }
    }
  }

  private def readFrame(): ByteBuffer = {
    read(4)
    val bytes = received.getInt() & 0xffffffffL
    if (bytes < FrameHeaderBytes || bytes > MaxFrameBytes) {
      throw new IOException(s"an answer of $bytes bytes, which is not between $FrameHeaderBytes and $MaxFrameBytes")
    }
    read(bytes.toInt)
    received
  }

  private def read(bytes: Int): Unit = {
    if (received.capacity < bytes) received = buffer(bytes)
    received.clear()
    while (received.position() < bytes) {
      // A channel copies through a buffer of its own that it keeps: small steps keep that one small.
      received.limit(math.min(bytes, received.position() + StepBytes))
      if (channel.read(received) < 0) throw new EOFException("the sidecar closed the connection")
    }
    received.flip()
  }

  private def write(out: ByteBuffer): Unit = {
    val end = out.limit()
    while (out.position() < end) {
      out.limit(math.min(end, out.position() + StepBytes))
      channel.write(out)
    }
  }
}

object Client {
  private[spark] val ProtocolVersion: Short = 1
  private[spark] val FrameHeaderBytes = 9
  private[spark] val MaxFrameBytes = 1L << 30
  private[spark] val StepBytes = 256 << 10
  private val PartBytes = 1 << 20

  private val Commit: Byte = 2
  private val Load: Byte = 3
  private val Truncate: Byte = 6

  private[spark] val Done = 0
  private[spark] val Part = 1
  private[spark] val Failed = 2
  private[spark] val FailedForGood = 3

  private[spark] def buffer(bytes: Int): ByteBuffer = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN)

  private[spark] def stringBytes(text: String): Long = 2L + text.getBytes(UTF_8).length

  private[spark] def putString(out: ByteBuffer, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.putShort(bytes.length.toShort).put(bytes)
  }

  private[spark] def getString(in: ByteBuffer): String = {
    val bytes = new Array[Byte](in.getShort & 0xffff)
    in.get(bytes)
    new String(bytes, UTF_8)
  }
}
