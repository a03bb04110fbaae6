package ckpt.spark

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * Rows of one column family to bytes and back, by Spark's own encoders: the bytes of keys sort as Spark's scans ask,
 * and state can be exchanged with Spark's RocksDB provider. Decoded rows are views that the next call changes.
 */
final class Encoding(key: RocksDBKeyStateEncoder, value: RocksDBValueStateEncoder, val ordered: Boolean) {
  def multipleValues: Boolean = value.supportsMultipleValuesPerKey
  def prefixScans: Boolean = key.supportPrefixKeyScan
  def rangeScans: Boolean = key.supportsRangeScan
  def rangeDeletes: Boolean = key.supportsDeleteRange

  def encodeKey(row: UnsafeRow): Array[Byte] = key.encodeKey(row)
  def encodePrefix(row: UnsafeRow): Array[Byte] = key.encodePrefixKey(row)
  def decodeKey(bytes: Array[Byte]): UnsafeRow = key.decodeKey(bytes)
  def encodeValue(row: UnsafeRow): Array[Byte] = value.encodeValue(row)
  def decodeValue(bytes: Array[Byte]): UnsafeRow = value.decodeValue(bytes)
  def decodeValues(bytes: Array[Byte]): Iterator[UnsafeRow] = value.decodeValues(bytes)

  /** Values of one key, one after the other, behind those that it has. Each carries its length. */
  def append(has: Array[Byte], rows: Iterable[UnsafeRow]): Array[Byte] = {
    val encoded = rows.map(value.encodeValue).toArray
    val before = if (has == null) 0 else has.length
    val all = if (has == null) new Array[Byte](encoded.map(_.length).sum)
    else Arrays.copyOf(has, before + encoded.map(_.length).sum)
    encoded.foldLeft(before) { (at, bytes) =>
      System.arraycopy(bytes, 0, all, at, bytes.length)
      at + bytes.length
    }
    all
  }
}

object Encoding {
  private val NoDelimiter = 0

  def apply(
      family: String,
      spec: KeyStateEncoderSpec,
      valueSchema: StructType,
      useColumnFamilies: Boolean,
      multipleValues: Boolean,
      format: String,
      schemas: Option[StateSchemaProvider]): Encoding = {
    val rows: RocksDBDataEncoder =
      if (format == StateStoreEncoding.Avro.toString) new AvroStateEncoder(spec, valueSchema, schemas, family)
      else new UnsafeRowDataEncoder(spec, valueSchema)
    new Encoding(
      RocksDBStateEncoder.getKeyEncoder(rows, spec, useColumnFamilies),
      RocksDBStateEncoder.getValueEncoder(rows, valueSchema, multipleValues, NoDelimiter),
      ordered = !spec.isInstanceOf[NoPrefixKeyStateEncoderSpec])
  }
}
