package ckpt.spark.spill

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

/** How much memory one store takes. `spillIfIdle` moves it to disk, unless a task has the store open. */
final class StoreMemory(val spillIfIdle: () => Unit) {
  @volatile private[spill] var usedAt = System.nanoTime()
  @volatile private[spill] var spillable = 0L
  private var held = 0L

  /** The store was used, and has so much in memory now: all of it, and what could be moved to disk. */
  def report(heldBytes: Long, spillableBytes: Long): Unit = synchronized {
    usedAt = System.nanoTime()
    spillable = spillableBytes
    Budget.add(heldBytes - held)
    held = heldBytes
  }
}

/** The memory of this JVM's stores together. What is above the limit is moved to disk, the least recently used first. */
object Budget {
  private val held = new AtomicLong
  private val stores = ConcurrentHashMap.newKeySet[StoreMemory]

  def heldBytes: Long = held.get

  def enter(store: StoreMemory): Unit = stores.add(store)

  def leave(store: StoreMemory): Unit = {
    store.report(0, 0)
    stores.remove(store)
  }

  /**
   * Makes the stores fit, as far as those can be moved that no other task has open; `spillOwn` moves the caller's, which
   * comes last. A SpillError is the caller's to report: the memory is still taken then.
   */
  def fit(limitBytes: Long, own: StoreMemory)(spillOwn: => Unit): Unit = if (heldBytes > limitBytes) synchronized {
    val others = stores.asScala.filter(store => (store ne own) && store.spillable > 0).toSeq.sortBy(_.usedAt).iterator
    while (heldBytes > limitBytes && others.hasNext) others.next().spillIfIdle()
    if (heldBytes > limitBytes && own.spillable > 0) spillOwn
  }

  private[spill] def add(bytes: Long): Unit = held.addAndGet(bytes)
}
