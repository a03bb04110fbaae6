package ckpt.spark

/**
 * Moves the state of a checkpoint between providers. Until everything is copied and read back, the checkpoint stays as
 * it was. Knows providers by Spark's interface only, and of `state` the store, to commit under an id that is given.
 *
 * Python knows `Moving` and its exceptions by name, so their package is `ckpt.spark`.
 */
package object moving
