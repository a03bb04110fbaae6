package org.apache.spark.sql.execution.streaming.state

import scala.io.Source

import org.scalatest.{Args, FailedStatus, Status, TestSuite}
import org.scalatest.events.TestFailed

/**
 * A suite of Spark whose stores are of ckpt: the session's settings come as system properties from run.py. What
 * suites.toml excludes is reported as ignored.
 */
trait OnCkpt extends TestSuite {
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
  private lazy val excluded = {
    val lines = Source.fromFile(System.getProperty("ckpt.suites.excluded"), "UTF-8")
    try lines.getLines().map(_.split('\t')).map(fields => fields(0) -> fields(1).r).toList
    finally lines.close()
  }
}
