package ckpt.spark.state

/**
 * The rows of a store that are still in the backend. A key is fetched when it is first asked for, and it is remembered
 * whether it is there. All rows are loaded when a caller iterates, or when so many keys were fetched that loading all
 * costs no more.
 *
 * The backend has these rows as of the commit that the state is at, so commits and undoing them need none of them. Two
 * threads may ask at once: whatever adds to a family that is not complete happens under the lock of this object.
 */
final class RemoteRows(state: StateMap, reader: CommitReader, keys: Long) {
  import RemoteRows._

  private val mostFetches = math.max(LeastFetches, keys / KeysLoadedInAFetch)
  private var fetches = 0L

  /** On return the family knows whether the key is there: it was fetched alone, or with all others. */
  def fetch(family: Family, key: Array[Byte]): Unit = synchronized {
    if (family.lacks(key)) {
      if (fetches >= mostFetches) load()
      else {
        fetches += 1
        family.remember(key.clone, reader.fetch(state.position, StateMap.storedKey(family.id, key)))
      }
    }
  }

  /** On return nothing is in the backend only. */
  def load(): Unit = synchronized {
    if (state.isPartial) reader.load(state.position, state)
  }
}

object RemoteRows {
  // A fetch takes about as long as loading so many keys, so that fetching first at most doubles what a load costs.
  private val KeysLoadedInAFetch = 128
  private val LeastFetches = 16
}

/** What one family knows of its keys in the backend, until all of them are loaded. */
final class RemoteKeys(val rows: RemoteRows) {
  private var absent = 0L
  private var known = new HashIndex

  /** How many keys were asked for that the backend does not have. */
  def absentKeys: Long = absent

  def noteAbsent(): Unit = absent += 1

  /** All rows come from now on: those that the family has already count as they are there, changed or removed. */
  def loading(there: Iterator[Entry]): Unit = {
    known = new HashIndex
    there.foreach(entry => known.insert(entry.key, entry.value))
  }

  /** Whether the family had the key before its rows came. */
  def wasKnown(key: Array[Byte]): Boolean = known.find(key) != null
}
