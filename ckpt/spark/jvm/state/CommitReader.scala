package ckpt.spark.state

import java.nio.ByteBuffer
import java.util.Arrays
import java.util.concurrent.atomic.LongAdder

import scala.collection.mutable

import ckpt.spark.wire.CountedRequests

/** Reads the rows of one store's commits from the backend; `afterBlock` runs after each block of them. */
final class CommitReader(requests: CountedRequests, namespace: String, afterBlock: () => Unit) {
  private val fetched = new LongAdder

  /** How many keys were fetched one by one since the last call. */
  def takeFetched(): Long = fetched.sumThenReset()

  /** The value of one stored key; null if there is none. */
  def fetch(at: CommitRef, storedKey: Array[Byte]): Array[Byte] = {
    fetched.increment()
    get(at, Seq(storedKey)).head
  }

  /** The values of stored keys, in their order; null where there is none. */
  def get(at: CommitRef, storedKeys: Seq[Array[Byte]]): Seq[Array[Byte]] = {
    val found = mutable.HashMap[ByteBuffer, Array[Byte]]()
    requests.call(_.get(namespace, at.version, at.commitId, storedKeys) { block =>
      block.foreach { (bytes, key, keyBytes, value, valueBytes) =>
        found(ByteBuffer.wrap(Arrays.copyOfRange(bytes, key, key + keyBytes))) =
          Arrays.copyOfRange(bytes, value, value + valueBytes)
      }
    })
    storedKeys.map(key => found.getOrElse(ByteBuffer.wrap(key), null))
  }

  /** Reads all rows of a commit into a state, which is that commit on return. */
  def load(at: CommitRef, into: StateMap): Unit = {
    foreach(at)(into.loading())(into.load(_, _, _, _, _, _))
    into.loaded(at)
  }

  /** Hands over all rows of a commit. `begin` runs before the first row, and again each time that this broke off. */
  def foreach(at: CommitRef)(begin: => Unit)(rows: StoredRows): Unit =
    requests.call { client =>
      begin
      client.load(namespace, at.version, at.commitId) { block =>
        block.foreach { (bytes, key, keyBytes, value, valueBytes) =>
          val family = StateMap.familyId(bytes, key)
          rows.take(family, bytes, key + StateMap.IdBytes, keyBytes - StateMap.IdBytes, value, valueBytes)
        }
        afterBlock()
      }
    }
}

/** Takes a row: the id of its family, and where key and value are in an array that is used again. */
trait StoredRows {
  def take(familyId: Int, bytes: Array[Byte], key: Int, keyBytes: Int, value: Int, valueBytes: Int): Unit
}
