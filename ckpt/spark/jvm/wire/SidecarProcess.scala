package ckpt.spark.wire

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Path
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit, TimeoutException}

import org.slf4j.LoggerFactory

/** A signal ended the sidecar before it was ready. Nothing is wrong with its settings, so another may be started. */
final class SidecarKilledError(message: String) extends IOException(message)

/** Starts `ckpt serve --on-demand`, which is the sidecar of an address or finds the one that runs. */
object SidecarProcess {
  private val log = LoggerFactory.getLogger(classOf[Sidecar])
  private val LeastReadyWithinMs = 60000L
  private val Ready = "READY "
  private val BySignal = 128

  /** The process, and the socket at which a sidecar answers. */
  def start(settings: SidecarSettings): (Process, Path) = {
    val scrapes = settings.metrics.toSeq.flatMap(Seq("--metrics", _))
    val command = new ProcessBuilder((settings.python +: "-m" +: "ckpt" +: "serve" +: scrapes :+ "--on-demand" :+ "-"): _*)
    val process =
      try command.redirectErrorStream(true).start()
      catch {
        case e: IOException =>
          throw new IOException(s"cannot start ${settings.python}: ${e.getMessage}; name the Python that has ckpt " +
            s"installed on every executor in ${Settings.Python}", e)
      }
    // On standard input, as an address may hold a secret and every user of the host can read a command line. The stream
    // stays open: its end tells the sidecar that this process has ended.
    try {
      val stdin = process.getOutputStream
      stdin.write(s"${settings.address}\n".getBytes(UTF_8))
      stdin.flush()
    } catch {
      case e: IOException => log.debug("it ended before it had read its address, and says why", e)
    }
    (process, awaitReady(settings, process))
  }

  private def awaitReady(settings: SidecarSettings, process: Process): Path = {
    val answer = new CompletableFuture[Path]
    val reader = new Thread(() => readOutput(settings, process, answer), "ckpt-sidecar-output")
    reader.setDaemon(true)
    reader.start()
    val withinMs = math.max(LeastReadyWithinMs, settings.timeoutMs)
    try answer.get(withinMs, TimeUnit.MILLISECONDS)
    catch {
      case e: ExecutionException =>
        throw e.getCause match {
          case killed: SidecarKilledError => killed
          case cause => new IOException(cause.getMessage, cause)
        }
      case _: TimeoutException =>
        process.destroyForcibly()
        throw new IOException(s"the sidecar was not ready after ${withinMs / 1000} s; the executor's log has what it " +
          s"said; if its backend takes longer to open, raise ${Settings.Timeout}")
    }
  }

  /** Reads the output until the process ends: an unread pipe fills up, and the process would stop at its next line. */
  private def readOutput(settings: SidecarSettings, process: Process, answer: CompletableFuture[Path]): Unit = {
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
      val told = s"`${settings.python} -m ckpt serve` ended with code $code and said: $said"
      answer.completeExceptionally(if (code > BySignal) new SidecarKilledError(told) else new IOException(told))
    } catch {
      case e: IOException => answer.completeExceptionally(e)
    } finally lines.close()
  }
}
