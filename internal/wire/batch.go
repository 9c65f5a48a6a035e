package wire

// Kind is the kind of a record. It is the first byte of the record's key in the store, so it must
// never be renumbered.
type Kind byte

// The kinds of record. The value is the encoded message of the same name in objects.proto.
const (
	KindJobSpec     Kind = 1  // key: job id
	KindJobStatus   Kind = 2  // key: job id
	KindTask        Kind = 3  // key: TaskKey
	KindNode        Kind = 4  // key: node id
	KindNodeStatus  Kind = 5  // key: node id; never stored
	KindQueueConfig Kind = 6  // key: empty; there is one
	KindQueueStatus Kind = 7  // key: queue path; never stored
	KindPolicy      Kind = 8  // key: PolicyKey
	KindOutcome     Kind = 9  // key: token of a command; stored and not replicated
	KindArchive     Kind = 10 // key: empty; there is one
	KindEventIDs    Kind = 11 // key: empty; there is one

	KindEventSettings Kind = 12 // key: empty; there is one
	KindCounts        Kind = 13 // key: empty; there is one
	KindHistorian     Kind = 14 // key: name of a historian
	KindImport        Kind = 15 // key: empty; stored while a store is imported, and never replicated
	KindQueuePast     Kind = 16 // key: queue path; stored and not replicated
)

// NumKinds is one more than the highest kind.
const NumKinds = 17

// Mutation is a put or delete of one encoded record.
type Mutation struct {
	Kind      Kind
	Key       string
	Value     []byte // nil: delete
	Ephemeral bool   // replicated, not stored
	Node      string // of a task: the node to which it is bound; empty otherwise
}

// EventChunk is a run of events with consecutive ids, in package ring's packed form.
type EventChunk struct {
	FirstID uint64
	Count   uint64
	Data    []byte
}

// Batch holds the changes of one turn of the engine, which are committed together or not at all.
type Batch struct {
	Epoch     uint64
	Revision  uint64
	Time      int64 // Unix nanoseconds
	Mutations []Mutation
	Events    EventChunk
}
