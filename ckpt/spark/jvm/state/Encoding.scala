package ckpt.spark.state

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/**
 * Rows of one column family to bytes and back, by Spark's own encoders: the bytes of keys sort as Spark's scans ask,
 * and state can be exchanged with Spark's RocksDB provider. Decoded rows are views that the next call changes.
 */
final class Encoding(key: RocksDBKeyStateEncoder, value: RocksDBValueStateEncoder, val description: Description) {
  val multipleValues: Boolean = value.supportsMultipleValuesPerKey
  val ordered: Boolean = !description.keyEncoder.isInstanceOf[NoPrefixKeyStateEncoderSpec]
  def prefixScans: Boolean = key.supportPrefixKeyScan
  def rangeScans: Boolean = key.supportsRangeScan
  def rangeDeletes: Boolean = key.supportsDeleteRange

  def encodeKey(row: UnsafeRow): Array[Byte] = key.encodeKey(row)
  def encodePrefix(row: UnsafeRow): Array[Byte] = key.encodePrefixKey(row)
  def decodeKey(bytes: Array[Byte]): UnsafeRow = key.decodeKey(bytes)
  def encodeValue(row: UnsafeRow): Array[Byte] = value.encodeValue(row)
  def decodeValue(bytes: Array[Byte]): UnsafeRow = value.decodeValue(bytes)
  def decodeValues(bytes: Array[Byte]): Iterator[UnsafeRow] = value.decodeValues(bytes)

  /** Values of one key, one after the other. Each carries its length. */
  def encodeValues(rows: Array[UnsafeRow]): Array[Byte] =
    if (rows.length == 1) value.encodeValue(rows(0))
    else {
      val encoded = rows.map(value.encodeValue)
      val all = new Array[Byte](encoded.map(_.length).sum)
      encoded.foldLeft(0) { (at, bytes) =>
        System.arraycopy(bytes, 0, all, at, bytes.length)
        at + bytes.length
      }
      all
    }
}

object Encoding {
  private val NoDelimiter = 0
  private val Avro = "avro"
  private val UnsafeRows = "unsaferow"

  /** The name of an encoding in the catalogue; Spark's setting may spell it otherwise. */
  def word(format: String): String = if (format == StateStoreEncoding.Avro.toString) Avro else UnsafeRows

  def apply(
      family: String,
      as: Description,
      useColumnFamilies: Boolean,
      schemas: Option[StateSchemaProvider]): Encoding = {
    val rows: RocksDBDataEncoder =
      if (as.encoding == Avro) new AvroStateEncoder(as.keyEncoder, as.valueSchema, schemas, family)
      else new UnsafeRowDataEncoder(as.keyEncoder, as.valueSchema)
    new Encoding(
      RocksDBStateEncoder.getKeyEncoder(rows, as.keyEncoder, useColumnFamilies),
      RocksDBStateEncoder.getValueEncoder(rows, as.valueSchema, as.multiple, NoDelimiter),
      as)
  }
}
