package informer

import (
	"context"
	"errors"
)

// ErrHistoryTooShort is the answer of a Source that no longer holds the changes after the version
// that it is asked to resume from. Open or Next return it, wrapped or not. The Reflector then opens
// the source from the zero Version, which begins with a snapshot.
var ErrHistoryTooShort = errors.New("informer: the history does not reach back to that version; take a snapshot")

// Source is a place where objects are kept in one order of changes: a gateway, a leader, a table.
type Source[T any] interface {
	// Open begins to follow the source after the version from. The zero Version asks for a
	// snapshot first. A source may also send a snapshot when it was asked to resume. The stream
	// ends with ctx.
	Open(ctx context.Context, from Version) (Stream[T], error)
}

// Stream is the sequence of messages of one Open. One goroutine calls Next.
type Stream[T any] interface {
	// Next blocks until there is a message. It returns an error soon after the end of Open's
	// context or a call of Close, which may come from another goroutine. io.EOF says that the
	// source ended the stream in order. The slices of a message belong to the caller.
	Next() (Message[T], error)
	// Close releases the stream. It may be called again.
	Close() error
}

// MessageKind says which of its fields a Message uses.
type MessageKind uint8

// The kinds of messages. A snapshot is any number of SnapshotPart and one SnapshotEnd; no other
// message comes between them.
const (
	SnapshotPart MessageKind = iota // Objects are a part of the snapshot
	SnapshotEnd                     // Objects are the rest of the snapshot, which shows the source at Version
	Changed                         // Objects and Deleted together lead to Version, in one step
	Bookmark                        // nothing has changed up to Version

	numMessageKinds
)

var messageKindNames = [numMessageKinds]string{"SnapshotPart", "SnapshotEnd", "Changed", "Bookmark"}

// String returns the name of the kind.
func (k MessageKind) String() string {
	if k >= numMessageKinds {
		return "unknown"
	}
	return messageKindNames[k]
}

// Message is one step of a Stream.
type Message[T any] struct {
	Kind MessageKind
	// Version is the place of the message in the source's order; a SnapshotPart has none.
	// Invariant: the versions of a stream grow, from the one it was opened at.
	Version Version
	// Objects are created or changed, each in its state at Version.
	Objects []T
	// Deleted are the objects that ended. Invariant: no key is both here and in Objects.
	Deleted []Deletion[T]
}
