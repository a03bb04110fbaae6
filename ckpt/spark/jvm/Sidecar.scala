package ckpt.spark

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.channels.ClosedByInterruptException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Path
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit, TimeoutException}

import scala.collection.mutable

import org.slf4j.LoggerFactory

/** How to start a sidecar: one for each distinct value in a JVM. */
final case class SidecarSettings(address: String, python: String)

/** The sidecars of this JVM: an executor has one, whatever the number of its stores. */
object Sidecar {
  private val log = LoggerFactory.getLogger(classOf[Sidecar])
  private val started = mutable.HashMap[SidecarSettings, Sidecar]()
  private val ReadyWithinS = 60L
  private val Ready = "READY "

  /** A running sidecar as this process sees it. */
  private final case class Connected(client: Client, lifeline: Connection)

  def of(settings: SidecarSettings): Sidecar = synchronized(started.getOrElseUpdate(settings, new Sidecar(settings)))
}

/**
 * The Python process that serves the backend to this JVM. It is started when it is first needed and lives as long as
 * its lifeline, so it does not outlive this process however that ends; when it dies first, the next request starts
 * another.
 */
final class Sidecar(settings: SidecarSettings) {
  import Sidecar._

  private var connected: Connected = _

  /** Makes a request; a request whose answer was lost is repeated once, which the protocol allows for every one. */
  def call[A](request: Client => A): A = {
    val first = current()
    try request(first)
    catch {
      case answered: SidecarError => throw answered
      case killed: ClosedByInterruptException => throw killed
      case lost: IOException =>
        log.warn(s"lost the sidecar of ${settings.python}: $lost; connecting again")
        request(replacing(first))
    }
  }

  private def current(): Client = synchronized {
    if (connected == null) connected = start()
    connected.client
  }

  private def replacing(lost: Client): Client = synchronized {
    // Several tasks lose the same sidecar at once: the first finds or starts another, the others use that one.
    if (connected != null && (connected.client eq lost)) {
      connected.client.close()
      connected.lifeline.close()
      connected = null
    }
    current()
  }

  private def start(): Connected = {
    val command = new ProcessBuilder(settings.python, "-m", "ckpt", "serve", "--on-demand", "-")
    val process =
      try command.redirectErrorStream(true).start()
      catch {
        case e: IOException =>
          throw new IOException(s"cannot start ${settings.python}: ${e.getMessage}; name the Python that has ckpt " +
            s"installed on every executor in ${Settings.Python}", e)
      }
    // An address may hold a secret, and everybody on the host can read a command line. The stream stays open.
    val stdin = process.getOutputStream
    stdin.write(s"${settings.address}\n".getBytes(UTF_8))
    stdin.flush()
    val socket = awaitReady(process)
    log.info(s"the sidecar of process ${process.pid} answers at $socket")
    val client = new Client(socket)
    Connected(client, client.lifeline())
  }

  private def awaitReady(process: Process): Path = {
    val answer = new CompletableFuture[Path]
    val reader = new Thread(() => readOutput(process, answer), "ckpt-sidecar-output")
    reader.setDaemon(true)
    reader.start()
    try answer.get(ReadyWithinS, TimeUnit.SECONDS)
    catch {
      case e: ExecutionException => throw new IOException(e.getCause.getMessage, e.getCause)
      case _: TimeoutException =>
        process.destroyForcibly()
        throw new IOException(s"the sidecar was not ready after $ReadyWithinS s; the executor's log has what it said")
    }
  }

  /** Reads until the process ends: nobody else does, and a full pipe would stop it. */
  private def readOutput(process: Process, answer: CompletableFuture[Path]): Unit = {
    val lines = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    var said = "nothing"
    try {
      var line = lines.readLine()
      while (line != null) {
        if (line.startsWith(Ready)) answer.complete(Path.of(line.drop(Ready.length).trim))
        else {
          log.warn(line)
          said = line
        }
        line = lines.readLine()
      }
      val code = process.waitFor()
      answer.completeExceptionally(
        new IOException(s"`${settings.python} -m ckpt serve` ended with code $code and said: $said"))
    } catch {
      case e: IOException => answer.completeExceptionally(e)
    } finally lines.close()
  }
}
