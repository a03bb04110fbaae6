package ckpt.spark.spill

import java.io.{File, IOException}
import java.nio.channels.{FileChannel, OverlappingFileLockException}
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardOpenOption.{CREATE, WRITE}
import java.nio.file.attribute.{PosixFilePermissions, UserPrincipal}
import java.util.{Comparator, UUID}

import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv

/**
 * A folder on the executor's local disk that only its user can read and that goes with its process: it is removed at the
 * exit, or, where there was none, by the next process of that user on that disk.
 *
 * `<local dir>/ckpt-spill-<user>/<uuid>/alive` is locked as long as the process lives, which holds for any two that share
 * the disk. Process ids would not do: containers number their processes separately.
 */
final class ScratchFolder private (val path: Path, alive: FileChannel) {

  def delete(): Unit = {
    ScratchFolder.deleteAll(path)
    alive.close()
  }

  override def toString: String = path.toString
}

object ScratchFolder {
  private val OwnerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
  private val Alive = "alive"

  /** A new one, after those that were left behind are removed. */
  def create(): ScratchFolder = synchronized {
    val path = root.resolve(UUID.randomUUID().toString)
    exclusively(root) {
      sweep()
      Files.createDirectory(path, OwnerOnly)
      val alive = FileChannel.open(path.resolve(Alive), CREATE, WRITE)
      alive.lock()
      val made = new ScratchFolder(path, alive)
      Runtime.getRuntime.addShutdownHook(new Thread(() => deleteAll(path), "ckpt-spill-folder"))
      made
    }
  }

  /** Removes what processes that were killed have left behind; a failure is no reason not to start. */
  def removeStale(): Unit = synchronized {
    try if (Files.exists(root)) exclusively(root)(sweep())
    catch { case NonFatal(_) => }
  }

  private def root: Path = localDir.resolve(s"ckpt-spill-${System.getProperty("user.name")}")

  /** Where Spark itself would spill to: the cluster manager's choice comes first. */
  private def localDir: Path = {
    val settings = Option(SparkEnv.get).map(_.conf)
    val named = Seq("LOCAL_DIRS", "SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS").flatMap(name => Option(System.getenv(name))) ++
      settings.flatMap(_.getOption("spark.local.dir"))
    val first = named.flatMap(_.split(s"[,${File.pathSeparator}]")).map(_.trim).find(_.nonEmpty)
    Path.of(first.getOrElse(System.getProperty("java.io.tmpdir")))
  }

  /** One process at a time: a folder is there for a moment before it is locked. */
  private def exclusively[A](root: Path)(work: => A): A = {
    if (!Files.exists(root)) {
      Files.createDirectories(root.getParent)
      try Files.createDirectory(root, OwnerOnly)
      catch { case _: java.nio.file.FileAlreadyExistsException => }
    }
    requirePrivate(root)
    Using.resource(FileChannel.open(root.resolve("lock"), CREATE, WRITE)) { channel =>
      channel.lock()
      work
    }
  }

  /** In a folder that others share, one of them may have made it: its owner could swap what is read, or hold the lock. */
  private def requirePrivate(root: Path): Unit = {
    if (!Files.isDirectory(root, NOFOLLOW_LINKS) || Files.getOwner(root, NOFOLLOW_LINKS) != ownUser(root.getParent)) {
      throw new IOException(s"$root is not a folder of this user; remove it, or have spark.local.dir name another disk")
    }
    if (Files.getPosixFilePermissions(root) != OwnerOnly.value) Files.setPosixFilePermissions(root, OwnerOnly.value)
  }

  /** The owner of files that this process makes there; user names and ids may differ from it on some filesystems. */
  private def ownUser(folder: Path): UserPrincipal = {
    val made = Files.createTempFile(folder, ".ckpt-", "")
    try Files.getOwner(made, NOFOLLOW_LINKS)
    finally Files.delete(made)
  }

  private def sweep(): Unit =
    Using.resource(Files.list(root))(_.iterator.asScala.filter(Files.isDirectory(_)).toList).foreach { folder =>
      if (isAbandoned(folder)) deleteAll(folder)
    }

  private def isAbandoned(folder: Path): Boolean =
    try Using.resource(FileChannel.open(folder.resolve(Alive), CREATE, WRITE))(_.tryLock() != null)
    catch { case _: OverlappingFileLockException => false }

  private def deleteAll(folder: Path): Unit =
    try Using.resource(Files.walk(folder)) { found =>
      found.sorted(Comparator.reverseOrder[Path]).forEach(path => Files.deleteIfExists(path))
    } catch {
      case _: NoSuchFileException =>
      // Its owner still writes into it; what is left is removed by the next process.
      case _: IOException | _: java.io.UncheckedIOException =>
    }
}
