package ckpt.spark.wire

import java.io.{EOFException, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.ClosedByInterruptException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.TimeUnit

/** The sidecar answered that it cannot do what was asked. The kinds are those of the protocol page. */
final class SidecarError(val kind: Int, message: String) extends IOException(message) {
  def isMissingVersion: Boolean = kind == SidecarError.MissingVersion
}

object SidecarError {
  val Unavailable = 2
  val Config = 1
  val MissingVersion = 6
  val Token = 8
}

/** The sidecar did not answer in time; it is not known whether the request was carried out. */
final class SidecarTimeoutError(message: String) extends IOException(message)

/** What answers is no sidecar, or none of a version that this provider can talk to. */
final class NotASidecarError(message: String) extends IOException(message)

/**
 * Frames to and from one sidecar, as docs/protocol.md has them; one request at a time. A wait ends with an exception
 * when nothing arrives for `limitMs`, and at once when the thread is interrupted; the connection is closed then.
 */
final class Connection(endpoint: Endpoint, lifeline: Boolean, limitMs: Long) extends Watched {
  import Connection._

  private val wire = new Wire(endpoint)
  private var requests = 0L
  private var received = buffer(64 << 10)
  @volatile private var since = 0L
  @volatile private var isCut = false
  override val limitNanos: Long = TimeUnit.MILLISECONDS.toNanos(limitMs)
  private var longestFrame = 0L
  private var backendAddress = ""

  // After all fields are initialised: the watchdog reads them from now on.
  try waiting(greet())
  catch {
    case e: Throwable =>
      close()
      throw e
  }

  /** The address of the backend behind the sidecar, without secrets. */
  def backend: String = backendAddress

  /** How long the body of a request may be. */
  def longestBody: Long = math.min(longestFrame, MaxFrameBytes) - FrameHeaderBytes

  override def waitingSinceNanos: Long = since

  override def cut(): Unit = {
    isCut = true
    wire.close()
  }

  def isOpen: Boolean = wire.isOpen

  def close(): Unit = {
    Watchdog.forget(this)
    wire.close()
  }

  /** Sends one request and reads its answer: hands over the body of each part, then that of the last frame. */
  def ask(operation: Byte, bodyBytes: Long)(fill: ByteBuffer => Unit)(
      part: ByteBuffer => Unit,
      last: ByteBuffer => Unit): Unit = {
    val frameBytes = FrameHeaderBytes + bodyBytes
    if (bodyBytes > longestBody) {
      close() // parts of the same commit may have been sent, and the next commit of the connection would include them
      throw new SidecarError(SidecarError.Config, s"a request of $bodyBytes bytes is longer than the sidecar at " +
        s"$endpoint takes ($longestBody): one value, or one list of keys, is too long; split the state")
    }
    requests += 1
    val frame = buffer(4 + frameBytes.toInt).putInt(frameBytes.toInt).put(operation).putLong(requests)
    fill(frame)
    waiting {
      write(frame.flip())
      receive(part, last)
    }
  }

  private def greet(): Unit = {
    Watchdog.watch(this)
    wire.connect()
    val token = endpoint.token.getBytes(UTF_8)
    val hello = buffer(10 + token.length).put(Magic).putShort(ProtocolVersion)
    write(hello.putShort((if (lifeline) 1 else 0).toShort).putShort(token.length.toShort).put(token).flip())
    receive(
      part = _ => throw new NotASidecarError(s"$endpoint greets in parts, as no sidecar does"),
      last = { body =>
        val version = body.getShort
        if (version < OldestVersion || version > ProtocolVersion) {
          throw new NotASidecarError(s"the sidecar at $endpoint speaks version $version of the protocol, and this " +
            s"provider version $ProtocolVersion; install the same version of ckpt on both sides")
        }
        longestFrame = body.getInt() & 0xffffffffL
        backendAddress = getString(body)
      })
  }

  /** Waits as long as the limit allows, and says in plain words why a wait has ended. */
  private def waiting(exchange: => Unit): Unit = {
    since = System.nanoTime()
    try exchange
    catch {
      case answered @ (_: SidecarError | _: NotASidecarError) => throw answered
      case e: IOException if isCut =>
        throw new SidecarTimeoutError(s"the sidecar at $endpoint said nothing for ${limitMs / 1000.0} s").initCause(e)
      case e: IOException if Thread.currentThread().isInterrupted && !e.isInstanceOf[ClosedByInterruptException] =>
        throw new ClosedByInterruptException().initCause(e)
    } finally since = 0
  }

  private def receive(part: ByteBuffer => Unit, last: ByteBuffer => Unit): Unit = {
    var more = true
    while (more) {
      val body = readFrame()
      val status = body.get()
      val answered = body.getLong()
      status match {
        case Failed | FailedForGood =>
          if (status == FailedForGood) wire.close()
          throw new SidecarError(body.getShort & 0xffff, getString(body))
        case _ if answered != requests => throw new IOException(s"an answer to request $answered, not $requests")
        case Done => last(body); more = false
        case Part =>
          since = 0 // taking the rows is not waiting for the sidecar
          part(body)
          since = System.nanoTime()
        case unknown => throw new IOException(s"an answer with the unknown status $unknown")
      }
    }
  }

  private def readFrame(): ByteBuffer = {
    read(4)
    val bytes = received.getInt() & 0xffffffffL
    if (bytes < FrameHeaderBytes || bytes > (if (longestFrame == 0) LongestGreetingBytes else MaxFrameBytes)) {
      throw new NotASidecarError(s"$endpoint answers with a frame of $bytes bytes, as no sidecar does; see what runs " +
        s"there; if it wants TLS, set ${Settings.CaFile}")
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
      if (wire.read(received) < 0) throw new EOFException(s"the sidecar at $endpoint closed the connection")
      since = System.nanoTime()
    }
    received.flip()
  }

  private def write(out: ByteBuffer): Unit = {
    val end = out.limit()
    while (out.position() < end) {
      out.limit(math.min(end, out.position() + StepBytes))
      wire.write(out)
      since = System.nanoTime()
    }
  }
}

object Connection {
  private val Magic = "CKPT".getBytes(UTF_8)
  // The newest version that this side says, and the oldest that a sidecar may answer: as in ckpt/sidecar/frames.py.
  private val ProtocolVersion: Short = 1
  private val OldestVersion: Short = 1
  private val FrameHeaderBytes = 9
  private val MaxFrameBytes = 1L << 30
  private val LongestGreetingBytes = 128L << 10
  private val StepBytes = 256 << 10

  private val Done = 0
  private val Part = 1
  private val Failed = 2
  private val FailedForGood = 3

  private[wire] def buffer(bytes: Int): ByteBuffer = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN)

  private[wire] def stringBytes(text: String): Long = 2L + text.getBytes(UTF_8).length

  private[wire] def putString(out: ByteBuffer, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.putShort(bytes.length.toShort).put(bytes)
  }

  private[wire] def getString(in: ByteBuffer): String = {
    val bytes = new Array[Byte](in.getShort & 0xffff)
    in.get(bytes)
    new String(bytes, UTF_8)
  }
}
