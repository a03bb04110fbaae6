package ckpt.spark.state

/** Room on local disk for the families of one store: their rows stay until it is dropped or the disk fails. */
trait Disk {

  /** Whether what was written here is gone. */
  def isLost: Boolean

  /** An empty index, whose rows are on this disk. */
  def index(family: Int): Index

  /** Removes the rows of all families. */
  def drop(): Unit
}
