package ckpt.spark.routing

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

/**
 * A stateful operator whose keys are placed by a table: what Spark calls it, the version of its rows' format if it has
 * several, its stores, and the ids of the commits that this batch builds on, by partition and store.
 */
final case class RoutedOperator(
    id: Long,
    name: String,
    formatVersion: Option[Int],
    storeNames: Seq[String],
    commitIds: Option[Array[Array[String]]]) {

  /** The commit of one store that this batch builds on; None if Spark gives commits no ids. */
  def commitIdOf(partition: Int, storeName: String): Option[String] =
    commitIds.map(_(partition)(math.max(0, storeNames.indexOf(storeName))))
}

/** By which table the rows of a batch are routed to some operators. */
final case class Routing(table: RoutingTable, partitions: Int, operators: Seq[RoutedOperator])

/**
 * How rows reach the stores of a task. The operator above an exchange says it when the task begins to read, and an
 * operator reads before it opens its stores: so a store finds here by which table its keys came.
 */
object TaskRouting {
  private val byTask = new ConcurrentHashMap[Long, List[Routing]]

  /** Says it for the task of this thread, until the task ends. */
  def register(routing: Routing): Unit = {
    val task = TaskContext.get()
    val before = byTask.put(task.taskAttemptId(), routing :: byTask.getOrDefault(task.taskAttemptId(), Nil))
    if (before == null) task.addTaskCompletionListener[Unit](_ => byTask.remove(task.taskAttemptId()))
  }

  /** How the keys of an operator are placed in the task of this thread; None: as Spark does. */
  def of(operatorId: Long): Option[(Routing, RoutedOperator)] =
    for {
      task <- Option(TaskContext.get())
      routing <- Option(byTask.get(task.taskAttemptId())).flatMap(_.find(_.operators.exists(_.id == operatorId)))
      operator <- routing.operators.find(_.id == operatorId)
    } yield (routing, operator)
}
