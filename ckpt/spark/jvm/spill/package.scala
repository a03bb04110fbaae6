package ckpt.spark

/**
 * State on local disk, when the stores of an executor need more memory than they may have. Nothing here has to survive
 * the process: the backend has all of it. Knows `state` and `wire`.
 */
package object spill
