package org.apache.spark.sql.execution.streaming.state

import scala.io.Source

import org.apache.spark.internal.config.ConfigEntry
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.{Args, FailedStatus, Status, TestSuite}
import org.scalatest.events.TestFailed

/**
 * A suite of Spark whose stores are of ckpt: the session's settings come as system properties from run.py. What
 * suites.toml excludes is reported as ignored.
 */
trait OnCkpt extends TestSuite {
  OnCkpt.waitsBriefly

  private lazy val excluded = OnCkpt.excluded.collect { case (suite, test) if suite == getClass.getSimpleName => test }

  override def tags: Map[String, Set[String]] =
    testNames.filter(name => excluded.exists(_.matches(name))).foldLeft(super.tags) { (tags, name) =>
      tags.updated(name, tags.getOrElse(name, Set.empty) + "org.scalatest.Ignore")
    }

  /** A test that calls what only Spark's own provider has fails for itself; without this it would end the run. */
  override protected def runTest(testName: String, args: Args): Status =
    try super.runTest(testName, args)
    catch {
      case e: LinkageError =>
        args.reporter(TestFailed(
          args.tracker.nextOrdinal(), e.toString, suiteName, suiteId, Some(getClass.getName), testName, testName,
          recordedEvents = Vector.empty, analysis = Vector.empty, throwable = Some(e)))
        FailedStatus
    }
}

object OnCkpt {
  private val WaitS = 5L

  /**
   * `StateStore.stop` waits for maintenance that may wait for its lock, by default for five minutes. Tests make
   * configurations of their own, which no setting reaches, so the default itself is changed.
   */
  private lazy val waitsBriefly: Unit =
    Seq(SQLConf.STATE_STORE_MAINTENANCE_SHUTDOWN_TIMEOUT, SQLConf.STATE_STORE_MAINTENANCE_FORCE_SHUTDOWN_TIMEOUT)
      .foreach { (entry: ConfigEntry[Long]) =>
        val default = entry.getClass.getDeclaredField("_defaultValue")
        default.setAccessible(true)
        default.set(entry, java.lang.Long.valueOf(WaitS))
      }

  private lazy val excluded = {
    val lines = Source.fromFile(System.getProperty("ckpt.suites.excluded"), "UTF-8")
    try lines.getLines().map(_.split('\t')).map(fields => fields(0) -> fields(1).r).toList
    finally lines.close()
  }
}
