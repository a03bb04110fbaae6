package ckpt.spark.routing

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, Executors}
import java.util.concurrent.atomic.AtomicReference

import scala.util.control.NonFatal

import ckpt.spark.wire.{Client, CommitRows, Sidecar}
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.{QueryProgressEvent, QueryTerminatedEvent}

/** What was counted for the operators of one exchange in one batch; `group` is the number of the first of them. */
final case class CountedGroup(group: Long, partitions: Int, tableVersion: Long, counts: KeyCounts)

/** The counts of one batch, and where they go. */
final case class CountedBatch(batch: Long, namespace: String, sidecar: Sidecar, groups: Seq[CountedGroup])

/**
 * Writes down what was counted in each batch, in the order of batches, when Spark says that the batch has ended: not on
 * the thread that runs the batches. A failure costs the counts of that batch and nothing else.
 */
object LoadReports extends SparkListener with Logging {
  private val Magic = "ckbl".getBytes(US_ASCII)
  private val Format: Short = 1
  private val MostNames = 100
  private val MostGroups = 1000
  private val KeptBatches = 1000L

  private val counted = new ConcurrentHashMap[UUID, CountedBatch]
  private val names = new ConcurrentHashMap[(String, Long), Map[Int, String]]
  private val heard = new AtomicReference[SparkContext]
  private val writer = Executors.newSingleThreadExecutor { task: Runnable =>
    val thread = new Thread(task, "ckpt-loads")
    thread.setDaemon(true)
    thread
  }

  /** The counts of this batch are written down when it has ended. */
  def expect(context: SparkContext, runId: UUID, batch: CountedBatch): Unit = {
    if (heard.getAndSet(context) ne context) context.addSparkListener(this)
    counted.put(runId, batch)
  }

  /** Hashes of heavy keys whose names are not known yet; `namespace` is where their loads are written down. */
  def wanted(namespace: String, group: Long): Set[Int] =
    names.getOrDefault((namespace, group), Map.empty).collect { case (hash, null) => hash }.toSet

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case ended: QueryProgressEvent =>
      val run = ended.progress.runId
      val batch = counted.get(run)
      if (batch != null && batch.batch == ended.progress.batchId && counted.remove(run, batch)) {
        batch.groups.foreach(group => learnNames(batch.namespace, group))
        writer.execute(() => write(batch))
      }
    case ended: QueryTerminatedEvent => counted.remove(ended.runId)
    case _ =>
  }

  private def learnNames(namespace: String, group: CountedGroup): Unit = {
    if (names.size >= MostGroups) names.clear()
    val known = names.getOrDefault((namespace, group.group), Map.empty)
    val heaviest = group.counts.heavy.sortBy(-_._2).take(MostNames).map(_._1)
    names.put((namespace, group.group), heaviest.map { hash =>
      hash -> group.counts.nameOf(hash).orElse(known.get(hash).filter(_ != null)).orNull
    }.toMap)
  }

  private def write(batch: CountedBatch): Unit = try {
    val rows = batch.groups.map { group =>
      val known = names.getOrDefault((batch.namespace, group.group), Map.empty)
      s"loads/${group.group}".getBytes(UTF_8) -> bytes(batch.batch, group, known)
    }
    val version = batch.batch + 1
    batch.sidecar.call { client: Client =>
      client.commit(batch.namespace, version, None, UUID.randomUUID().toString, new Rows(rows))
      if (version % KeptBatches == 0 && version > KeptBatches) client.truncate(batch.namespace, version - KeptBatches)
    }
  } catch {
    case NonFatal(e) => logWarning(s"the loads of batch ${batch.batch} are not written down: $e")
  }

  /** As `ckpt/spark/rebalancing/loads.py` draws it. */
  private def bytes(batch: Long, of: CountedGroup, names: Map[Int, String]): Array[Byte] = {
    val keys = of.counts.heavy.sortBy(key => Integer.toUnsignedLong(key._1))
    val texts = keys.map(key => Option(names.getOrElse(key._1, null)).fold(Array.emptyByteArray)(_.getBytes(UTF_8)))
    val out = ByteBuffer.allocate(6 + 8 + 8 + 4 + 4 + 8 + 8 * of.partitions + 14 * keys.length + texts.map(_.length).sum)
    out.order(ByteOrder.LITTLE_ENDIAN).put(Magic).putShort(Format)
    out.putLong(batch).putLong(of.tableVersion).putInt(of.partitions).putInt(keys.length).putLong(of.counts.error)
    (0 until of.partitions).foreach(partition => out.putLong(of.counts.total(partition)))
    keys.foreach(key => out.putInt(key._1))
    keys.foreach(key => out.putLong(key._2))
    texts.foreach(text => out.putShort(text.length.toShort))
    texts.foreach(out.put)
    out.array
  }

  /** Rows as they are, in one part. */
  private final class Rows(puts: Seq[(Array[Byte], Array[Byte])]) extends CommitRows {
    override val bytes: Long = 8L + puts.map { case (key, value) => 8L + key.length + value.length }.sum
    override def parts(mostBytes: Long): Seq[CommitRows] = Seq(this)
    override def write(out: ByteBuffer): Unit = {
      out.putInt(puts.length)
      puts.foreach { case (key, _) => out.putInt(key.length) }
      puts.foreach { case (_, value) => out.putInt(value.length) }
      puts.foreach { case (key, _) => out.put(key) }
      puts.foreach { case (_, value) => out.put(value) }
      out.putInt(0)
    }
  }
}
