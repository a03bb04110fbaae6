package ckpt.spark.wire

import java.io.{EOFException, IOException}
import java.net.{ConnectException, SocketException}
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit}
import java.util.concurrent.atomic.LongAdder
import javax.net.ssl.SSLException

import scala.annotation.tailrec
import scala.collection.mutable

import org.slf4j.LoggerFactory

/** Which sidecar to use, or how to start one: one for each distinct value in a JVM. */
final case class SidecarSettings(
    address: String,
    python: String,
    running: Option[TcpEndpoint],
    metrics: Option[String],
    timeoutMs: Long) {

  // Without the address, which may hold a secret, and without the token.
  override def toString: String = s"SidecarSettings(${running.map(_.toString).getOrElse(python)}, $timeoutMs ms)"
}

/** The sidecars of this JVM: an executor has one, whatever the number of its stores. */
object Sidecar {
  private val log = LoggerFactory.getLogger(classOf[Sidecar])
  private val known = mutable.HashMap[SidecarSettings, Sidecar]()
  private val MostProbeMs = 5000L
  private val AwaitRestartNanos = TimeUnit.SECONDS.toNanos(30)
  private val LookAgainMs = 200L
  private val StartAttempts = 3
  private val MostLosses = 2 // in one request: after more, something on the host kills sidecars again and again

  /** A sidecar as this process sees it; `process` is that of a sidecar that was started here, or an ended one. */
  private final case class Connected(
      client: Client, endpoint: Endpoint, lifeline: Connection, process: Option[Process])

  def of(settings: SidecarSettings): Sidecar = synchronized(known.getOrElseUpdate(settings, new Sidecar(settings)))
}

/**
 * The Python process that serves the backend to this JVM: one that runs already, or one of this host that is started
 * when it is first needed and lives as long as its lifeline, so that it does not outlive this process however that
 * ends. When it dies first, the next request finds or starts another; when it hangs, the request fails in time.
 */
final class Sidecar(settings: SidecarSettings) {
  import Sidecar._

  // Part of the time of a request is kept for finding out whether the sidecar or its backend is silent.
  private val probeMs = math.min(MostProbeMs, settings.timeoutMs / 4)
  private val limitMs = settings.timeoutMs - probeMs

  private var connecting: CompletableFuture[Connected] = _
  private var connectedBefore = false

  /** Begins to start or find it in the background. A failure is reported to the first request, and not here. */
  def prepare(): Unit = synchronized { if (connecting == null) connecting = begin() }

  /** The address of the backend, without secrets. */
  def backend: String = current().lifeline.backend

  /** Makes a request; one whose answer was lost is repeated, which the protocol allows for every one. */
  def call[A](request: Client => A): A = call(request, losses = 0)

  @tailrec
  private def call[A](request: Client => A, losses: Int): A = {
    val connected = current()
    val answer =
      try Right(attempt(connected, request))
      catch {
        case certain @ (_: SidecarError | _: SidecarHangsError | _: ClosedByInterruptException) => throw certain
        case lost: IOException => Left(lost)
      }
    answer match {
      case Right(done) => done
      case Left(lost) =>
        forget(connected)
        if (losses == MostLosses) throw lost
        log.warn(s"lost the sidecar at ${connected.endpoint}: $lost; connecting again")
        call(request, losses + 1)
    }
  }

  private def attempt[A](connected: Connected, request: Client => A): A =
    try request(connected.client)
    catch { case silent: SidecarTimeoutError => throw diagnose(connected, silent) }

  /** Waits until there is a connection. All threads wait for the same one, and each can be interrupted alone. */
  private def current(): Connected = {
    val mine = synchronized {
      if (connecting == null || connecting.isCompletedExceptionally) connecting = begin()
      connecting
    }
    try mine.get()
    catch { case e: ExecutionException => throw new IOException(e.getCause.getMessage, e.getCause) }
  }

  private def begin(): CompletableFuture[Connected] = {
    val made = new CompletableFuture[Connected]
    val thread = new Thread(() => {
      try {
        made.complete(settings.running match {
          case Some(endpoint) => find(endpoint)
          case None => start()
        })
        synchronized { connectedBefore = true }
      } catch {
        case e: Throwable => made.completeExceptionally(e)
      }
    }, "ckpt-sidecar-start")
    thread.setDaemon(true)
    thread.start()
    made
  }

  /** Several tasks lose the same sidecar at once: the first makes room for another, the others find that one. */
  private def forget(lost: Connected): Unit = synchronized {
    if (connecting != null && !connecting.isCompletedExceptionally && connecting.getNow(null) == lost) {
      lost.client.close()
      lost.lifeline.close()
      connecting = null
    }
  }

  /** Starts a sidecar, or finds one. It may end before a lifeline holds it, or be killed: then another is started. */
  private def start(): Connected = {
    var made: Connected = null
    var attempts = 0
    while (made == null) {
      attempts += 1
      try {
        val (process, socket) = SidecarProcess.start(settings)
        made = connectedTo(process, UnixEndpoint(socket), attempts)
      } catch {
        case killed: SidecarKilledError if attempts < StartAttempts => log.warn(s"${killed.getMessage}; starting another")
      }
    }
    made
  }

  /** Null if it has ended meanwhile and there may be other attempts. */
  private def connectedTo(process: Process, endpoint: Endpoint, attempt: Int): Connected =
    try {
      val made = connected(endpoint, Some(process))
      log.info(s"the sidecar of process ${process.pid} answers at $endpoint")
      made
    } catch {
      case ended: IOException if attempt < StartAttempts && hasEnded(ended) =>
        log.info(s"the sidecar at $endpoint has just ended: $ended; starting another")
        null
    }

  private def hasEnded(failure: IOException): Boolean = failure match {
    case refusal: SidecarError => refusal.kind == SidecarError.Unavailable
    case _: SidecarTimeoutError | _: NotASidecarError | _: ClosedByInterruptException => false
    case _ => true
  }

  /** Connects to a sidecar that others have started. One that was there before may be about to come again. */
  private def find(endpoint: TcpEndpoint): Connected = {
    val patience = System.nanoTime() + (if (synchronized(connectedBefore)) AwaitRestartNanos else 0)
    var found: Connected = null
    while (found == null) {
      try found = connected(endpoint, process = None)
      catch {
        case e: SidecarError if e.kind == SidecarError.Token =>
          throw new IOException(s"the sidecar at $endpoint says: ${e.getMessage}; it is in the environment variable " +
            s"that ${Settings.Token} names", e)
        // A sidecar that ends, or has just ended, may fail in any way. That says nothing about the next one.
        case ended: IOException if hasEnded(ended) && System.nanoTime() < patience => Thread.sleep(LookAgainMs)
        case refused: ConnectException =>
          throw new IOException(s"no sidecar answers at $endpoint (${refused.getMessage}); start one there: ckpt serve " +
            s"ADDRESS --listen $endpoint, or correct ${Settings.Sidecar}", refused)
        case e: SSLException =>
          throw new IOException(s"no TLS with the sidecar at $endpoint: ${e.getMessage}; see that ${Settings.CaFile} " +
            s"holds the CA of its certificate, and that the certificate names ${endpoint.host}", e)
        case e @ (_: EOFException | _: SocketException) =>
          throw new IOException(s"$endpoint closed the connection without a greeting; if it wants TLS, set " +
            Settings.CaFile, e)
      }
    }
    found
  }

  private def connected(endpoint: Endpoint, process: Option[Process]): Connected =
    Connected(new Client(endpoint, limitMs), endpoint, new Connection(endpoint, lifeline = true, limitMs), process)

  /** Tells a sidecar that hangs from a backend that does not answer. The former is ended if it was started here. */
  private def diagnose(silent: Connected, cause: SidecarTimeoutError): SidecarHangsError = {
    val waited = s"no answer within ${settings.timeoutMs / 1000.0} s (${Settings.Timeout})"
    val hangs = try {
      val probe = new Connection(silent.endpoint, lifeline = false, probeMs)
      probe.close()
      None
    } catch { case e: IOException => Some(e) }
    hangs match {
      case None =>
        new SidecarHangsError(s"$waited: the sidecar at ${silent.endpoint} runs, but its backend " +
          s"${silent.lifeline.backend} does not answer it; see to the backend, nothing that was committed is lost", cause)
      case Some(interrupted: ClosedByInterruptException) => throw interrupted
      case Some(_) =>
        forget(silent)
        silent.process.filter(_.isAlive) match {
          case Some(process) =>
            process.destroyForcibly()
            new SidecarHangsError(s"$waited: the sidecar at ${silent.endpoint} hangs; process ${process.pid} was ended, " +
              "and the next attempt starts another", cause)
          case None =>
            new SidecarHangsError(s"$waited: the sidecar at ${silent.endpoint} hangs, and was not started by this " +
              "executor; see to that process, or end it", cause)
        }
    }
  }
}

/** A request was not answered in time; the message says whether the sidecar or its backend was silent. */
final class SidecarHangsError(message: String, cause: Throwable) extends IOException(message, cause)

/** Makes the requests of one store and counts them, repeated ones too. */
final class CountedRequests(sidecar: Sidecar) {
  private val count = new LongAdder

  def call[A](request: Client => A): A = sidecar.call { client =>
    count.increment()
    request(client)
  }

  /** How many there were since this was last asked. */
  def takeCount(): Long = count.sumThenReset()
}
