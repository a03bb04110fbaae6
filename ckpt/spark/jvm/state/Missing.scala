package ckpt.spark.state

/**
 * The rows of a store that are not here yet. A key is fetched when it is first asked for, and whether it is there is
 * remembered; everything is loaded when somebody iterates, or when so many keys were fetched that loading costs no more.
 *
 * What is not here is in the backend as of the commit that the state is at, so commits and their undoing need nothing of
 * it. Two threads may ask: whatever adds to a family that is not complete happens under the lock of this object.
 */
final class Missing(state: StateMap, source: Source, keys: Long) {
  import Missing._

  private val mostFetches = math.max(LeastFetches, keys / KeysLoadedInAFetch)
  private var fetches = 0L

  /** Makes the family know about a key that it lacks: alone, or with all others. */
  def fetch(family: Family, key: Array[Byte]): Unit = synchronized {
    if (family.lacks(key)) {
      if (fetches >= mostFetches) load()
      else {
        fetches += 1
        family.remember(key.clone, source.fetch(state.position, StateMap.storedKey(family.id, key)))
      }
    }
  }

  /** Loads everything that is not here yet. */
  def load(): Unit = synchronized {
    if (state.isPartial) {
      source.all(state.position)(attempt => state.completing(again = attempt > 0))(state.complete(_, _, _, _, _, _))
      state.completed()
    }
  }
}

object Missing {
  // A fetch takes about as long as loading so many keys: whoever loads after this many has lost as much again at most.
  private val KeysLoadedInAFetch = 128
  private val LeastFetches = 16
}
