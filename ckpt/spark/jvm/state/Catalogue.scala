package ckpt.spark.state

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{DataType, StructType}
import org.json4s._
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/** What a column family holds and how: enough to read its rows without the query that wrote them. */
final case class Description(
    internal: Boolean,
    multiple: Boolean,
    encoding: String,
    keySchema: StructType,
    valueSchema: StructType,
    keyEncoder: KeyStateEncoderSpec) {

  // A family keeps its id, and it is described for every batch.
  private var described: (Int, Array[Byte]) = (-1, null)

  /** The family's row in the catalogue. */
  def row(id: Int): Array[Byte] = synchronized {
    if (described._1 != id) described = (id, Catalogue.row(id, this))
    described._2
  }
}

/** What the provider itself needs of a family's row. */
final case class Catalogued(id: Int, internal: Boolean, multiple: Boolean)

/**
 * The rows of the family that describes all others, as docs/spark.md has them: a family's name to JSON, and under two
 * names that no family can have, where the store was last written from and how many keys are live.
 */
object Catalogue {
  val Id = 0xffff
  val Provenance: Array[Byte] = Array(0)
  val LiveKeys: Array[Byte] = Array(1)
  val Layout: Array[Byte] = Array(2)
  private val Format = 1

  /** Spark trims the names of families, so none consists of a control character. */
  def isFamily(key: Array[Byte]): Boolean = key.length != 1 || key(0) < Provenance(0) || key(0) > Layout(0)

  // The same for all stores of an operator, and making JSON is a good part of what opening a store takes. All stores
  // share these arrays, which are never written to.
  private val rows = new Memo[(Int, Description), Array[Byte]]
  private val read = new Memo[ByteBuffer, Catalogued]
  private val descriptions = new Memo[ByteBuffer, Description]
  private val provenances = new Memo[(String, String), Array[Byte]]

  private[state] def row(id: Int, of: Description): Array[Byte] = rows((id, of))(encode(id, of))

  private def encode(id: Int, of: Description): Array[Byte] = json(
    ("format" -> Format) ~
      ("id" -> id) ~
      ("internal" -> of.internal) ~
      ("multiple" -> of.multiple) ~
      ("encoding" -> of.encoding) ~
      ("keySchema" -> parse(of.keySchema.json)) ~
      ("valueSchema" -> parse(of.valueSchema.json)) ~
      ("keyEncoder" -> keyEncoder(of.keyEncoder)))

  /** All that a family's row says about it. */
  def describe(name: String, row: Array[Byte]): Description = descriptions(ByteBuffer.wrap(row)) {
    val read = decode(name, row)
    val fields = parse(new String(row, UTF_8))
    def schema(field: String): StructType = DataType.fromJson(compact(render(fields \ field))).asInstanceOf[StructType]
    val keySchema = schema("keySchema")
    Description(read.internal, read.multiple, (fields \ "encoding").values.toString, keySchema, schema("valueSchema"),
      keyEncoder(name, fields \ "keyEncoder", keySchema))
  }

  def decode(name: String, row: Array[Byte]): Catalogued = read(ByteBuffer.wrap(row))(parsed(name, row))

  private def parsed(name: String, row: Array[Byte]): Catalogued = {
    val fields = parse(new String(row, UTF_8))
    (fields \ "format", fields \ "id", fields \ "internal", fields \ "multiple") match {
      case (JInt(format), JInt(id), JBool(internal), JBool(multiple)) if format == Format =>
        Catalogued(id.toInt, internal, multiple)
      case (format, _, _, _) => throw new IllegalStateException(
        s"column family $name was written in format ${compact(render(format))}, which this ckpt does not know; " +
          "use the version of ckpt that wrote it, or a later one")
    }
  }

  /** Where a store is written from. */
  def provenance(origin: StoreOrigin): Array[Byte] = provenances((origin.checkpoint, origin.query))(json(
    ("format" -> Format) ~
      ("spark" -> SPARK_VERSION) ~
      ("checkpoint" -> origin.checkpoint) ~
      ("query" -> origin.query)))

  /** How many keys each family has: `u16` count, then each `u16` id and `u64` keys, big endian. */
  def liveKeys(families: Seq[Family]): Array[Byte] = {
    val out = ByteBuffer.allocate(2 + 10 * families.size).putShort(families.size.toShort)
    families.sortBy(_.id).foreach(family => out.putShort(family.id.toShort).putLong(family.numKeys))
    out.array
  }

  /** Ids of families and how many keys each has. */
  def readLiveKeys(row: Array[Byte]): Seq[(Int, Long)] = {
    val in = ByteBuffer.wrap(row)
    Seq.fill(in.getShort & 0xffff)((in.getShort & 0xffff, in.getLong))
  }

  private def keyEncoder(family: String, written: JValue, keySchema: StructType): KeyStateEncoderSpec =
    (written \ "type", written \ "columns", written \ "ordinals") match {
      case (JString("noPrefix"), _, _) => NoPrefixKeyStateEncoderSpec(keySchema)
      case (JString("prefix"), JInt(columns), _) => PrefixKeyScanStateEncoderSpec(keySchema, columns.toInt)
      case (JString("range"), _, JArray(ordinals)) =>
        RangeKeyScanStateEncoderSpec(keySchema, ordinals.collect { case JInt(ordinal) => ordinal.toInt })
      case (JString("timestampPrefix"), _, _) => TimestampAsPrefixKeyStateEncoderSpec(keySchema)
      case (JString("timestampPostfix"), _, _) => TimestampAsPostfixKeyStateEncoderSpec(keySchema)
      case _ => throw new IllegalStateException(s"the keys of column family $family are encoded as " +
        s"${compact(render(written))}, which this ckpt does not know; use the version of ckpt that wrote it, or a later one")
    }

  private def keyEncoder(spec: KeyStateEncoderSpec): JObject = spec match {
    case _: NoPrefixKeyStateEncoderSpec => "type" -> "noPrefix"
    case prefix: PrefixKeyScanStateEncoderSpec => ("type" -> "prefix") ~ ("columns" -> prefix.numColsPrefixKey)
    case range: RangeKeyScanStateEncoderSpec => ("type" -> "range") ~ ("ordinals" -> range.orderingOrdinals)
    case _: TimestampAsPrefixKeyStateEncoderSpec => "type" -> "timestampPrefix"
    case _: TimestampAsPostfixKeyStateEncoderSpec => "type" -> "timestampPostfix"
  }

  private def json(fields: JObject): Array[Byte] = compact(render(fields)).getBytes(UTF_8)
}

/** Results that are asked for again and again; too many different ones, and it begins anew. */
final class Memo[K, V] {
  private val known = new ConcurrentHashMap[K, V]

  def apply(key: K)(make: => V): V = {
    val found = known.get(key)
    if (found != null) found
    else {
      val made = make
      if (known.size >= Memo.Most) known.clear()
      known.put(key, made)
      made
    }
  }
}

object Memo {
  private val Most = 1000
}
