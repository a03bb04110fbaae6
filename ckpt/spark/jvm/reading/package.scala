package ckpt.spark

/**
 * What Spark's `statestore` reader asks for beside one version: any version by its commits, and what changed between
 * two. Changes nothing. Knows `state` and `wire`.
 */
package object reading
