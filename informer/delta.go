package informer

// KeyFunc returns the key of an object. It gives the same key whenever it is asked about the same
// object, and never the empty one.
type KeyFunc[T any] func(object T) (string, error)

// DeltaType says how an object came to be queued.
type DeltaType uint8

// The types of deltas. Deleted ends an object; after any other the object exists.
const (
	Added    DeltaType = iota // the source has a new object
	Updated                   // the source has changed an object
	Deleted                   // the object is gone
	Replaced                  // the object is in a new list of the source
	Sync                      // the object is shown again; nothing has changed

	numDeltaTypes
)

var deltaTypeNames = [numDeltaTypes]string{"Added", "Updated", "Deleted", "Replaced", "Sync"}

// String returns the name of the type, such as "Added".
func (t DeltaType) String() string {
	if t >= numDeltaTypes {
		return "unknown"
	}
	return deltaTypeNames[t]
}

// Delta is one change of an object.
type Delta[T any] struct {
	Type DeltaType
	// Tombstone says that the final state of a Deleted object is unknown: the deletion was found by
	// a comparison. Object is then the last state that is known, or the zero value.
	Tombstone bool
	Object    T
}

// Deltas are the changes of one key while it was queued, oldest first.
type Deltas[T any] struct {
	Key string
	// Initial says that the key belongs to the initial population of the queue.
	Initial bool
	// Changes has at least one element.
	Changes []Delta[T]
}

// Newest returns the last change. There is one in all Deltas that a queue hands over.
func (d Deltas[T]) Newest() Delta[T] { return d.Changes[len(d.Changes)-1] }

// Deletion is an object that is gone.
type Deletion[T any] struct {
	Key string
	// Object is the last state that is known. It is the zero value if none is.
	Object T
	// Tombstone says that Object may not be the final state: the deletion was found by a
	// comparison, or the source knows the key alone.
	Tombstone bool
}
