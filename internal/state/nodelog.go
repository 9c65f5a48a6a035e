package state

// NodeChange is a kind of change of a node that may let waiting tasks be placed, or change why they
// wait.
type NodeChange uint8

// The changes.
const (
	RoomFreed NodeChange = iota + 1 // a task has left it
	TaskCame                        // a task has come to it
	// it is new or open again, or its record is another one: it may take what it did not take
	// before
	NodeGained
	NodeLost // it is gone or offers less: it may be for less than before
)

// NodeEvent is a change of the node in a slot.
type NodeEvent struct {
	Slot   int32
	Change NodeChange
}

// nodeLogSize is how many of the last changes of nodes are remembered at least. A reader that has
// missed more is told so, and looks at all nodes.
const nodeLogSize = 4096

// nodeLog remembers what has changed of nodes.
type nodeLog struct {
	events []NodeEvent
	first  uint64 // number of the first event
}

func (l *nodeLog) add(slot int32, change NodeChange) {
	l.events = append(l.events, NodeEvent{slot, change})
	if len(l.events) >= 2*nodeLogSize {
		drop := len(l.events) - nodeLogSize
		l.events = append(l.events[:0], l.events[drop:]...)
		l.first += uint64(drop)
	}
}

// NodeEvents returns the changes of nodes from a number on, in order, and the number from which to
// read next. ok is false if some of them are forgotten. The slice is good until the next change.
func (s *State) NodeEvents(from uint64) (events []NodeEvent, next uint64, ok bool) {
	l := &s.nodeLog
	next = l.first + uint64(len(l.events))
	if from < l.first {
		return nil, next, false
	}
	return l.events[from-l.first:], next, true
}

// Eligible returns how many nodes take tasks now.
func (s *State) Eligible() int { return s.eligible }
