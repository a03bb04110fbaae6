package ckpt.spark

/**
 * What is changed in the plans of Spark's queries: operators that accept this provider, and a warning about queries that
 * are with another one. Plans of queries with other providers stay as they are. Which plans are routed is told to `routing`.
 *
 * The extension that injects it is in this folder too; settings know its name, so its package is `ckpt.spark`.
 */
package object plan
