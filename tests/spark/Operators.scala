package ckpt.testing

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

/** Operators that only Scala and Java can call, as queries for the tests of `tests/spark/operators.py`. */
class Operators {
  /** Rows need `word`, `amount` and `id`, and a watermark; timers are set for `closingMs`. */
  def transformWithState(rows: DataFrame, closingMs: Long): DataFrame = {
    val session = rows.sparkSession
    import session.implicits._
    val words = rows.select("word", "amount", "id").as[(String, Long, Long)].groupByKey(_._1)
    words
      .transformWithState(new Tally(closingMs), TimeMode.EventTime(), OutputMode.Update())
      .toDF("word", "n", "sum", "ids", "closed")
  }

  /** The same by `flatMapGroupsWithState`. */
  def flatMapGroupsWithState(rows: DataFrame, closingMs: Long): DataFrame = {
    val session = rows.sparkSession
    import session.implicits._
    // The watermark is that of a column, which therefore stays until the groups are made.
    val words = rows.select("word", "amount", "id", "at").as[(String, Long, Long, java.sql.Timestamp)].groupByKey(_._1)
    words
      .flatMapGroupsWithState[(Long, Long, Seq[Long]), (String, Long, Long, Long, Boolean)](
        OutputMode.Update(), GroupStateTimeout.EventTimeTimeout()) { (word, added, state) =>
        val before = state.getOption.getOrElse((0L, 0L, Seq.empty[Long]))
        val closed = state.hasTimedOut
        val (n, sum, ids) = added.foldLeft(before) { case ((n, sum, ids), (_, amount, id, _)) =>
          (n + 1, sum + amount, (ids :+ id).distinct)
        }
        if (closed) state.remove()
        else {
          state.update((n, sum, ids))
          if (state.getCurrentWatermarkMs() < closingMs) state.setTimeoutTimestamp(closingMs)
        }
        Iterator((word, n, sum, ids.size.toLong, closed))
      }
      .toDF("word", "n", "sum", "ids", "closed")
  }
}

/** Counts a word in a value, keeps its amounts in a list and its ids in a map, and closes it by a timer. */
class Tally(closingMs: Long) extends StatefulProcessor[String, (String, Long, Long), (String, Long, Long, Long, Boolean)] {
  @transient private var number: ValueState[Long] = _
  @transient private var amounts: ListState[Long] = _
  @transient private var ids: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    number = getHandle.getValueState("number", Encoders.scalaLong, TTLConfig.NONE)
    amounts = getHandle.getListState("amounts", Encoders.scalaLong, TTLConfig.NONE)
    ids = getHandle.getMapState("ids", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      word: String,
      rows: Iterator[(String, Long, Long)],
      timerValues: TimerValues): Iterator[(String, Long, Long, Long, Boolean)] = {
    rows.foreach { case (_, amount, id) =>
      number.update((if (number.exists()) number.get() else 0L) + 1)
      amounts.appendValue(amount)
      ids.updateValue(id, amount)
    }
    getHandle.registerTimer(closingMs)
    Iterator(row(word, closed = false))
  }

  override def handleExpiredTimer(
      word: String,
      timerValues: TimerValues,
      expiredTimerInfo: ExpiredTimerInfo): Iterator[(String, Long, Long, Long, Boolean)] =
    Iterator(row(word, closed = true))

  private def row(word: String, closed: Boolean): (String, Long, Long, Long, Boolean) =
    (word, number.get(), amounts.get().sum, ids.keys().size.toLong, closed)
}
