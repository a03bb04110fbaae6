package ckpt.spark.wire

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

/** A connection that may wait for an answer, and whose wait another thread can end. */
trait Watched {

  /** When its peer was last heard of, by `System.nanoTime`; 0 while it does not wait. */
  def waitingSinceNanos: Long

  def limitNanos: Long

  def cut(): Unit
}

/**
 * Ends a wait that is longer than its limit, within half a second. A blocked channel has no timeout, and a selector
 * before each read would cost every request another system call.
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
      // A failure to cut one connection must not end the thread: without it this executor makes no connection.
      try cutIfSilent(one, now)
      catch { case NonFatal(e) => log.warn("cannot close a connection that has waited too long; trying again", e) }
    }
  }

  private def cutIfSilent(one: Watched, now: Long): Unit = {
    val since = one.waitingSinceNanos
    if (since != 0 && now - since > one.limitNanos) one.cut()
  }
}
