package ckpt.spark

/**
 * The state of one store: versions in memory, their rows in the backend, and what Spark's operators see of them. When a
 * commit returns, its version is durable. Knows `wire`, and of local disk only the trait `Disk`.
 *
 * The provider, which opens stores, is in this folder too; Spark knows its name, so its package is `ckpt.spark`.
 */
package object state
