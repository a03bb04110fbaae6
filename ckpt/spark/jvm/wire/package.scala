package ckpt.spark

/**
 * Requests to a sidecar as docs/protocol.md has them, its process, and the settings of a session. A request is answered,
 * fails, or ends in time with an exception that says why. Knows nothing of state, and no other package.
 */
package object wire
