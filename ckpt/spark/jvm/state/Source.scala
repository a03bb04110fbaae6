package ckpt.spark.state

import java.nio.ByteBuffer
import java.util.Arrays
import java.util.concurrent.atomic.LongAdder

import scala.collection.mutable

import ckpt.spark.wire.Requests

/** The rows of one store's commits as the backend has them; `afterBlock` runs now and then while they are handed over. */
final class Source(requests: Requests, namespace: String, afterBlock: () => Unit) {
  private val fetched = new LongAdder

  /** How many keys were fetched one by one since the last time that somebody asked. */
  def takeFetched(): Long = fetched.sumThenReset()

  /** The value of one stored key; null if there is none. */
  def fetch(at: At, storedKey: Array[Byte]): Array[Byte] = {
    fetched.increment()
    get(at, Seq(storedKey)).head
  }

  /** The values of stored keys, in their order; null where there is none. */
  def get(at: At, storedKeys: Seq[Array[Byte]]): Seq[Array[Byte]] = {
    val found = mutable.HashMap[ByteBuffer, Array[Byte]]()
    requests.call(_.get(namespace, at.version, at.commitId, storedKeys) { block =>
      block.foreach { (bytes, key, keyBytes, value, valueBytes) =>
        found(ByteBuffer.wrap(Arrays.copyOfRange(bytes, key, key + keyBytes))) =
          Arrays.copyOfRange(bytes, value, value + valueBytes)
      }
    })
    storedKeys.map(key => found.getOrElse(ByteBuffer.wrap(key), null))
  }

  /** Hands over all rows: the family's id, key and value. `begin` is told how often that broke off before. */
  def all(at: At)(begin: Int => Unit)(rows: LoadedRows): Unit = {
    var attempts = 0
    requests.call { client =>
      begin(attempts)
      attempts += 1
      client.load(namespace, at.version, at.commitId) { block =>
        block.foreach { (bytes, key, keyBytes, value, valueBytes) =>
          val family = StateMap.familyId(bytes, key)
          rows.take(family, bytes, key + StateMap.IdBytes, keyBytes - StateMap.IdBytes, value, valueBytes)
        }
        afterBlock()
      }
    }
  }
}

/** Takes a row of the backend: the family's id, and where key and value are in an array that is used again. */
trait LoadedRows {
  def take(familyId: Int, bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit
}
