package ckpt.spark.routing

import java.util.IdentityHashMap
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import ckpt.spark.state.{CommitReader, CommitRef, Namespace}
import ckpt.spark.wire.{CountedRequests, Settings, Sidecar}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, DirectShufflePartitionID}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, ShufflePartitionIdPassThrough}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeExec, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorStateInfo, StateStoreWriter}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/**
 * Places the keys of stateful operators by their tables: the exchanges under an operator get an expression that asks its
 * table, in the place of Spark's hash, and an operator above them that tells the stores.
 *
 * Operators that share an exchange share a table, which has the number of the first of them. An operator whose rows do
 * not come by the hash of a key stays as it is: it has all its keys in one partition, or no exchange of its own.
 */
object RouteState extends Logging {
  private val told = ConcurrentHashMap.newKeySet[(java.util.UUID, Long)]()

  def apply(plan: SparkPlan, conf: SQLConf): SparkPlan = {
    val shuffled = plan.collect { case operator: StateStoreWriter if operator.stateInfo.isDefined => operator }
      .flatMap { operator =>
        exchangesOf(operator) match {
          case Right(exchanges) => Some(Shuffled(Seq(operator), exchanges))
          case Left(reason) =>
            tellOnce(operator, reason)
            None
        }
      }
    if (shuffled.isEmpty) plan
    else {
      val groups = shuffled.foldLeft(Seq.empty[Shuffled]) { (before, one) =>
        val (sharing, apart) = before.partition(_.exchanges.exists(e => one.exchanges.exists(_ eq e)))
        apart :+ (sharing :+ one).reduce(_ + _)
      }
      val run = groups.head.info.queryRunId
      val namespace = Namespace.ofTables(
        groups.head.info.checkpointLocation, run.toString, plan.session.sessionState.newHadoopConf())
      val loads = Namespace.ofLoads(namespace)
      val sidecar = Sidecar.of(Settings.sidecar(StateStoreConf(conf)))
      val routings = new IdentityHashMap[ShuffleExchangeExec, (Routing, KeyCounts)]
      val counted = groups.zip(tablesOf(groups, namespace, sidecar)).map { case (group, table) =>
        val info = group.info
        val routing = Routing(table, info.numPartitions, group.operators.map(routed))
        val counts = new KeyCounts(info.numPartitions, LoadReports.wanted(loads, group.first))
        plan.session.sparkContext.register(counts)
        group.exchanges.foreach(routings.put(_, (routing, counts)))
        CountedGroup(group.first, info.numPartitions, table.version, counts)
      }
      val batch = groups.head.info.storeVersion
      LoadReports.expect(
        plan.session.sparkContext, run, CountedBatch(batch, loads, sidecar, counted))
      // Exchanges are known by their identity, and one may be under another: from the top down.
      def place(node: SparkPlan): SparkPlan = node match {
        case exchange: ShuffleExchangeExec if routings.containsKey(exchange) =>
          val (routing, counts) = routings.get(exchange)
          RoutedExec(placedBy(exchange, routing, counts).mapChildren(place), routing, batch)
        case other => other.mapChildren(place)
      }
      place(plan)
    }
  }

  /** Where an exchange sends rows now; as Spark has it if the table says the same. */
  private def placedBy(exchange: ShuffleExchangeExec, routing: Routing, counts: KeyCounts): ShuffleExchangeExec =
    exchange.outputPartitioning match {
      case hashed @ HashPartitioning(keys, partitions) =>
        def place = RoutedPartitionId(new CollationAwareMurmur3Hash(keys), routing.table)
        val placed =
          if (routing.table.isHash) hashed
          else ShufflePartitionIdPassThrough(DirectShufflePartitionID(place), partitions)
        exchange.copy(placed, CountedExec(exchange.child, keys, routing.table, counts))
      case _ => exchange
    }

  /** The exchanges that all rows of an operator come from, or why they come otherwise. */
  private def exchangesOf(operator: StateStoreWriter): Either[String, Seq[ShuffleExchangeExec]] = {
    val partitions = operator.stateInfo.get.numPartitions
    val found = new mutable.ArrayBuffer[ShuffleExchangeExec]
    def look(plan: SparkPlan): Option[String] = plan match {
      case exchange: ShuffleExchangeExec => exchange.outputPartitioning match {
        case HashPartitioning(_, n) if n == partitions =>
          found += exchange
          None
        case other => Some(s"its rows come by ${other}")
      }
      case _: BroadcastExchangeExec => None
      case leaf if leaf.children.isEmpty => Some(s"rows come from ${leaf.nodeName} without an exchange")
      case node => lookAt(inputs(node))
    }
    def lookAt(plans: Seq[SparkPlan]): Option[String] = plans.iterator.map(look).collectFirst { case Some(why) => why }
    lookAt(inputs(operator)).toLeft(found.toSeq)
  }

  /** Where a node reads rows from: without an initial state, its plan is there but not carried out. */
  private def inputs(node: SparkPlan): Seq[SparkPlan] = node match {
    case groups: FlatMapGroupsWithStateExec if !groups.hasInitialState => Seq(groups.left)
    case transform: TransformWithStateExec if !transform.hasInitialState => Seq(transform.left)
    case transform: TransformWithStateInPySparkExec if !transform.hasInitialState => Seq(transform.left)
    case other => other.children
  }

  private def routed(operator: StateStoreWriter): RoutedOperator = {
    val format = operator match {
      case join: StreamingSymmetricHashJoinExec => Some(join.stateFormatVersion)
      case _ => None
    }
    val info = operator.stateInfo.get
    RoutedOperator(info.operatorId, operator.shortName, format, operator.stateStoreNames, info.stateStoreCkptIds)
  }

  private def tablesOf(groups: Seq[Shuffled], namespace: String, sidecar: Sidecar): Seq[RoutingTable] = {
    val tables = new CommitReader(new CountedRequests(sidecar), namespace, () => ())
    val keys = groups.map(group => s"table/${group.first}".getBytes("UTF-8"))
    tables.get(CommitRef.Newest, keys).zip(groups).map { case (bytes, group) =>
      val partitions = group.info.numPartitions
      if (bytes == null) RoutingTable.hashed(partitions) else RoutingTable.of(bytes, partitions)
    }
  }

  private def tellOnce(operator: StateStoreWriter, reason: String): Unit = {
    val info = operator.stateInfo.get
    if (told.add((info.queryRunId, info.operatorId))) {
      logInfo(s"the keys of operator ${info.operatorId} (${operator.shortName}) stay where Spark's hash places them: $reason")
    }
  }

  /** Operators and the exchanges that their rows come from. */
  private final case class Shuffled(operators: Seq[StateStoreWriter], exchanges: Seq[ShuffleExchangeExec]) {
    def info: StatefulOperatorStateInfo = operators.head.stateInfo.get
    def first: Long = operators.map(_.stateInfo.get.operatorId).min
    def +(other: Shuffled): Shuffled = Shuffled(operators ++ other.operators, exchanges ++ other.exchanges)
  }
}
