package ckpt.spark

/**
 * Places the keys of stateful operators by tables instead of Spark's hash, and moves their state when a table changes.
 * A store's commit says under which table it was made, so a batch computes from no row that belongs elsewhere. Knows
 * `state` and `wire`; who decides about tables is not known here.
 */
package object routing
