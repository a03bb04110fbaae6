package ckpt.spark.moving

import java.util.UUID

import scala.util.Try
import scala.util.control.NonFatal

import ckpt.spark.MovingRefused
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorsUtils
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate._
import org.apache.spark.sql.execution.streaming.state._

/** A column family, and whether its keys have lists of values. */
final case class MovedFamily(schema: StateStoreColFamilySchema, multiple: Boolean) {
  def name: String = schema.colFamilyName
  def isDefault: Boolean = name == StateStore.DEFAULT_COL_FAMILY_NAME
  def internal: Boolean = StateStoreColumnFamilySchemaUtils.isInternalColFamily(name)
  def encoder: KeyStateEncoderSpec = schema.keyStateEncoderSpec.get

  /** Of a row; encoders that keep the order of keys may give a key back in another form, so that these count less. */
  def fingerprint(key: UnsafeRow, value: UnsafeRow): Long = {
    val keyHash = encoder match {
      case _: NoPrefixKeyStateEncoderSpec | _: PrefixKeyScanStateEncoderSpec => key.hashCode
      case _ => 0
    }
    (keyHash.toLong << 32 | (value.hashCode & 0xffffffffL)) * 0x9e3779b97f4a7c15L
  }
}

/** A store of an operator, which every partition has one of; `position` is its place among the operator's stores. */
final case class MovedStore(
    operator: Long,
    operatorName: String,
    name: String,
    position: Int,
    partitions: Int,
    families: Seq[MovedFamily],
    schemas: Option[StateSchemaProvider]) {

  def hasFamilies: Boolean = families.exists(!_.isDefault)

  /** Spark wants schemas for it also where an operator has only named families. */
  def defaultFamily: MovedFamily = families.find(_.isDefault).getOrElse {
    val any = families.head.schema
    MovedFamily(any.copy(
      colFamilyName = StateStore.DEFAULT_COL_FAMILY_NAME,
      keyStateEncoderSpec = Some(NoPrefixKeyStateEncoderSpec(any.keySchema))), multiple = false)
  }
}

/** Which stores a checkpoint has, from what Spark notes down about its operators and their schemas. */
final class MovedStores(logs: CheckpointLogs, hadoopConf: Configuration) {
  import MovedStores._

  private val state = new Path(logs.root, "state")
  private val files = CheckpointFileManager.create(logs.root, hadoopConf)

  def all: Seq[MovedStore] = {
    val operators = numbersIn(state)
    if (operators.isEmpty) throw new MovingRefused(s"the query of ${logs.root} keeps no state to move")
    operators.flatMap { operator =>
      val folder = new Path(state, operator.toString)
      val metadata = metadataOf(folder)
      metadata.stateStoresMetadata.zipWithIndex.map { case (store, position) =>
        describe(operator, metadata, store, position, partitionsIn(folder, operator, store.numPartitions))
      }
    }
  }

  private def metadataOf(folder: Path): OperatorStateMetadata = {
    val version = if (files.exists(OperatorStateMetadataV2.metadataDirPath(folder))) 2 else 1
    if (version == 1 && !files.exists(OperatorStateMetadataV1.metadataFilePath(folder))) {
      throw new MovingRefused(s"$folder does not say which operator it is of, as with Spark before 3.5; " +
        "run the query for one batch with this Spark and its old provider, then move it")
    }
    OperatorStateMetadataReader
      .createReader(folder, hadoopConf, version, logs.committed, createMetadataDir = false)
      .read()
      .getOrElse(throw new MovingRefused(s"$folder/_metadata cannot be read; this checkpoint is damaged"))
  }

  /**
   * Each partition has a folder, and those of partitions that are no more may be there too. A global aggregation has
   * one partition, whatever the number of shuffle partitions is.
   */
  private def partitionsIn(folder: Path, operator: Long, noted: Int): Int = {
    val found = numbersIn(folder)
    val expected = logs.stateIds.flatMap(_.get(operator)).map(_.length)
      .getOrElse(if (found == Seq(0L)) 1 else logs.shufflePartitions.getOrElse(noted))
    val missing = (0L until expected.toLong).filterNot(found.contains)
    if (missing.nonEmpty) {
      throw new MovingRefused(s"$folder has no partition ${missing.head}, but should have $expected; state is missing")
    }
    expected
  }

  private def describe(
      operator: Long,
      metadata: OperatorStateMetadata,
      store: StateStoreMetadata,
      position: Int,
      partitions: Int): MovedStore = {
    val schemaFiles = store match {
      case v2: StateStoreMetadataV2 => v2.stateSchemaFilePaths
      case _ => Nil
    }
    val name = metadata.operatorInfo.operatorName
    val lists = listsOf(metadata)
    val families = schemasOf(operator, store, schemaFiles).map { schema =>
      MovedFamily(withEncoder(schema, store), lists.contains(schema.colFamilyName))
    }
    // Values of transformWithState may have been written with older schemas, by number.
    val schemas = if (!isTransformWithState(metadata)) None
    else Some(new InMemoryStateSchemaProvider(
      StateSchemaMetadata.createStateSchemaMetadata(state.toString, hadoopConf, schemaFiles)))
    MovedStore(operator, name, store.storeName, position, partitions, families, schemas)
  }

  private def schemasOf(
      operator: Long,
      store: StateStoreMetadata,
      files: List[String]): Seq[StateStoreColFamilySchema] = {
    val id = StateStoreId(state.toString, operator, StateStore.PARTITION_ID_TO_CHECK_SCHEMA, store.storeName)
    try {
      new StateSchemaCompatibilityChecker(
        StateStoreProviderId(id, UUID.randomUUID()),
        hadoopConf,
        oldSchemaFilePaths = files.map(new Path(_)),
        createSchemaDir = false).readSchemaFile()
    } catch {
      case NonFatal(e) =>
        throw new MovingRefused(s"operator $operator of $state has no readable schema of store ${store.storeName}: $e")
    }
  }

  private def withEncoder(schema: StateStoreColFamilySchema, store: StateStoreMetadata): StateStoreColFamilySchema =
    if (schema.keyStateEncoderSpec.isDefined) schema
    else schema.copy(keyStateEncoderSpec = Some(
      if (store.numColsPrefixKey > 0) PrefixKeyScanStateEncoderSpec(schema.keySchema, store.numColsPrefixKey)
      else NoPrefixKeyStateEncoderSpec(schema.keySchema)))

  private def numbersIn(folder: Path): Seq[Long] =
    if (!files.exists(folder)) Nil
    else files.list(folder).toSeq.flatMap(file => Try(file.getPath.getName.toLong).toOption).sorted
}

object MovedStores {
  private val ListsOfJoins = SymmetricHashJoinStateManager.allStateStoreNamesV4(LeftSide, RightSide).toSet

  private def isTransformWithState(metadata: OperatorStateMetadata): Boolean =
    StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(metadata.operatorInfo.operatorName)

  /** The families whose keys have lists of values, which the schema files do not say. */
  private def listsOf(metadata: OperatorStateMetadata): Set[String] = metadata match {
    case v2: OperatorStateMetadataV2 if isTransformWithState(metadata) =>
      TransformWithStateOperatorProperties.fromJson(v2.operatorPropertiesJson).stateVariables
        .filter(_.stateVariableType == StateVariableType.ListState).map(_.stateName).toSet
    case _ => ListsOfJoins
  }
}
