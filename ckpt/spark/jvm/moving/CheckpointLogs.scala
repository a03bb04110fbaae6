package ckpt.spark.moving

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Try
import scala.util.control.NonFatal

import ckpt.spark.MovingRefused
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.checkpointing._
import org.apache.spark.sql.internal.SQLConf
import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/**
 * The batches of a checkpoint as its folders `offsets` and `commits` tell them, read once. A file is replaced whole or
 * not at all, and what it was stays beside it under a name that Spark does not look at.
 */
final class CheckpointLogs(val root: Path, hadoopConf: Configuration) {
  import CheckpointLogs._

  private val files = CheckpointFileManager.create(root, hadoopConf)
  private val started = batches("offsets")

  if (started.isEmpty) {
    throw new MovingRefused(
      s"$root is not the checkpoint of a streaming query that has run: it has no offsets; give the query's " +
        "checkpointLocation")
  }

  /** The last batch that was committed. A later one that was only planned runs again when the query starts. */
  val committed: Long = batches("commits").lastOption.getOrElse(throw new MovingRefused(
    s"no batch of $root is committed, so there is no state to move; let the query finish one, or begin anew"))

  /** What state the query goes on from; Spark counts the state before the first batch as version 0. */
  val version: Long = committed + 1

  val planned: Option[Long] = started.lastOption.filter(_ > committed)

  /** Newest first, which is the one that says how the query goes on, down to the committed batch. */
  val offsets: Seq[LogFile] = started.filter(_ >= committed).reverse.map(read("offsets", _, newest = 2))

  val commit: LogFile = read("commits", committed, newest = 3)

  if (offsets.last.batch != committed) {
    throw new MovingRefused(s"$root/offsets/$committed is missing, although batch $committed is committed; " +
      "this checkpoint is damaged")
  }

  /** The settings that Spark keeps for as long as the checkpoint lives. */
  val settings: OffsetSeqMetadataBase = {
    val text = compact(render(offsets.head.metadata))
    if (offsets.head.version == 1) OffsetSeqMetadata(text) else OffsetSeqMetadataV2(text)
  }

  /** The class of the provider that the state is with; Spark did not always note it down. */
  val provider: String = OffsetSeqMetadata.readValue(settings, SQLConf.STATE_STORE_PROVIDER_CLASS)

  val shufflePartitions: Option[Int] = settings.conf.get(SQLConf.SHUFFLE_PARTITIONS.key).map(_.toInt)

  /** Checkpoint format 2: which attempt at the batch counts, by operator, partition and store. */
  val stateIds: Option[Map[Long, Seq[Seq[String]]]] = commit.metadata \ StateIds match {
    case JObject(operators) =>
      Some(operators.map { case (operator, ids) =>
        operator.toLong -> (for (JArray(partition) <- ids.children) yield for (JString(id) <- partition) yield id)
      }.toMap)
    case _ => None
  }

  /** The same files with another provider in them. */
  def offsetsWith(provider: String): Seq[LogFile] = offsets.map { file =>
    file.withMetadata {
      case ("conf", JObject(conf)) =>
        ("conf", JObject(conf.filterNot(_._1 == ProviderClass) :+ (ProviderClass -> JString(provider))))
    }
  }

  /** The same file with other state ids, or none, which is checkpoint format 1. */
  def commitWith(ids: Option[Map[Long, Seq[Seq[String]]]]): LogFile = {
    val others = JObject(commit.metadata.obj.filterNot(_._1 == StateIds))
    val made = ids.map { operators =>
      StateIds -> JObject(operators.toList.sortBy(_._1).map { case (operator, partitions) =>
        operator.toString -> JArray(partitions.map(stores => JArray(stores.map(JString(_)).toList)).toList)
      })
    }
    // Version 3 tells of sinks and may be either; 1 and 2 say whether there are ids.
    val version = if (commit.version == 3) 3 else if (ids.isDefined) 2 else 1
    commit.copy(version = version, metadata = JObject(others.obj ++ made))
  }

  /** Whether the query has gone on since these logs were read. */
  def wentOn: Boolean = {
    val now = new CheckpointLogs(root, hadoopConf)
    now.committed != committed || now.offsets != offsets || now.commit != commit
  }

  /** Keeps what a file is as `<file>.<name>.bak`; where that is. */
  def backUp(file: LogFile, name: String): Path = {
    val kept = new Path(file.path.getParent, s"${file.path.getName}.$name.bak")
    write(kept, textOf(file.path))
    kept
  }

  def replace(file: LogFile): Unit = write(file.path, file.text)

  private def write(path: Path, text: String): Unit = {
    val out = files.createAtomic(path, overwriteIfPossible = true)
    try {
      out.write(text.getBytes(UTF_8))
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
  }

  private def batches(folder: String): Seq[Long] = {
    val path = new Path(root, folder)
    if (!files.exists(path)) Nil
    else files.list(path).toSeq.flatMap(file => Try(file.getPath.getName.toLong).toOption).sorted
  }

  private def textOf(path: Path): String = {
    val in = files.open(path)
    try new String(in.readAllBytes(), UTF_8)
    finally in.close()
  }

  private def read(folder: String, batch: Long, newest: Int): LogFile = {
    val path = new Path(root, s"$folder/$batch")
    val text = try textOf(path) catch {
      case _: FileNotFoundException => throw new MovingRefused(s"$path went away meanwhile; stop the query first")
    }
    val lines = text.split("\n", -1).toSeq
    val version = lines.head.trim match {
      case Version(number) if number.toInt <= newest => number.toInt
      case Version(number) => throw new MovingRefused(
        s"$path has format $number, but this Spark knows formats up to $newest; use the Spark that wrote it")
      case _ => throw new MovingRefused(s"$path does not begin with a version; this checkpoint is damaged")
    }
    val metadata = try lines.lift(1).map(_.trim).filter(_.nonEmpty).map(parse(_)).getOrElse(JObject()) catch {
      case NonFatal(_) => throw new MovingRefused(s"$path has no readable second line; this checkpoint is damaged")
    }
    metadata match {
      case made: JObject => LogFile(path, batch, version, made, lines.drop(2))
      case _ => throw new MovingRefused(s"$path has no readable second line; this checkpoint is damaged")
    }
  }
}

object CheckpointLogs {
  private val ProviderClass = SQLConf.STATE_STORE_PROVIDER_CLASS.key
  private val StateIds = "stateUniqueIds"
  private val Version = "v(\\d{1,6})".r
}

/** One file of a log: a version, a line of JSON, and further lines that stay as they are. */
final case class LogFile(path: Path, batch: Long, version: Int, metadata: JObject, rest: Seq[String]) {
  def text: String = (Seq(s"v$version", compact(render(metadata))) ++ rest).mkString("\n")

  def withMetadata(change: PartialFunction[JField, JField]): LogFile =
    copy(metadata = JObject(metadata.obj.map(field => change.applyOrElse(field, identity[JField]))))
}
