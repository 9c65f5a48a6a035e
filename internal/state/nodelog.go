package state

// NodeChange is a kind of change of a node. Each may let waiting tasks be placed, or change why
// they wait.
type NodeChange uint8

// The changes.
const (
	RoomFreed NodeChange = iota + 1 // a task has left the node
	TaskCame                        // a task was bound to the node
	// NodeGained is a node that is new, open again or changed. More tasks may fit than before.
	NodeGained
	NodeLost // the node is gone or was changed; fewer tasks may fit than before
)

// NodeEvent is a change of the node in a slot.
type NodeEvent struct {
	Slot   int32
	Change NodeChange
}

// nodeLogSize is the least number of changes that the log keeps. A reader that is further behind
// must look at all nodes.
const nodeLogSize = 4096

// nodeLog holds the last changes of nodes, numbered from 0.
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

// NodeEvents returns the changes of nodes from a number on, in order, and the number of the next
// change. ok is false if the log no longer has all of them. The slice is good until the next
// change.
func (s *State) NodeEvents(from uint64) (events []NodeEvent, next uint64, ok bool) {
	l := &s.nodeLog
	next = l.first + uint64(len(l.events))
	if from < l.first {
		return nil, next, false
	}
	return l.events[from-l.first:], next, true
}

// Eligible returns the number of nodes that take tasks now.
func (s *State) Eligible() int { return s.eligible }
