package ckpt.spark.wire

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

/** Something that waits for an answer, and can be cut off from it by another thread. */
trait Watched {

  /** When it was last heard of, as `System.nanoTime` has it; 0 while it waits for nothing. */
  def waitingSinceNanos: Long

  def limitNanos: Long

  def cut(): Unit
}

/**
 * Cuts whoever has waited longer than its limit, within half a second. A blocked channel knows no timeout; asking a
 * selector before each read would cost every request another system call.
 */
object Watchdog {
  private val log = LoggerFactory.getLogger(classOf[Watched])
  private val TickMs = 250L
  private val watched = ConcurrentHashMap.newKeySet[Watched]()

  private lazy val thread: Thread = {
    val made = new Thread(() => run(), "ckpt-watchdog")
    made.setDaemon(true)
    made.start()
    made
  }

  def watch(one: Watched): Unit = {
    watched.add(one)
    if (!thread.isAlive) throw new IllegalStateException(s"${thread.getName} has died; restart the executor")
  }

  def forget(one: Watched): Unit = watched.remove(one)

  private def run(): Unit = while (true) {
    Thread.sleep(TickMs)
    val now = System.nanoTime()
    watched.forEach { one =>
      // The thread outlives any failure to cut one of them: without it, no connection of this executor could be made.
      try cutIfSilent(one, now)
      catch { case NonFatal(e) => log.warn("cannot close a connection that has waited too long; trying again", e) }
    }
  }

  private def cutIfSilent(one: Watched, now: Long): Unit = {
    val since = one.waitingSinceNanos
    if (since != 0 && now - since > one.limitNanos) one.cut()
  }
}
