package plimsoll

import (
	"maps"
	"slices"
	"time"
)

// NodeMode is an operator's setting: whether a node takes tasks.
type NodeMode uint8

// The modes.
const (
	NodeActive   NodeMode = iota + 1 // takes tasks
	NodeCordoned                     // takes no new tasks; running tasks go on
	NodeDraining                     // takes no new tasks; running tasks are stopped and placed elsewhere

	numNodeModes
)

var nodeModeNames = [numNodeModes]string{"", "active", "cordoned", "draining"}

// Known reports whether this version has the mode.
func (m NodeMode) Known() bool { return m >= NodeActive && m < numNodeModes }

// String returns the mode's name, such as "cordoned".
func (m NodeMode) String() string { return wordOf(nodeModeNames[:], m) }

// ParseNodeMode is the inverse of String; an unknown name is zero.
func ParseNodeMode(s string) NodeMode { return NodeMode(indexOf(nodeModeNames[:], s)) }

// Node is a machine and its agent. Times are Unix nanoseconds.
type Node struct {
	ID          string
	Address     string // address at which its agent serves logs: host:port or unix:/path
	Capacity    Resources
	Attributes  map[string]string // descriptive facts: os, arch, kernel, cgroup …
	Incarnation uint64            // raised at each start of the agent; a call with an older one is refused
	Mode        NodeMode
	Ready       bool // its agent is connected
	Registered  int64
	Revision    uint64
	Facts       NodeFacts
	Gate        NodeGate
	Evictions   []Eviction // recent evictions, ordered by the time they end
	Occupied    NodeUse    // what runs outside of its tasks, as the last event told it
	OccupiedAt  int64      // time of that event; 0: none was told

	Key     string // public key of its agent; empty for an agent of a version without keys
	Session string // SHA-256 of the secret by which the agent's calls identify themselves
	// Peer is the address from which its agent called, as the gateway saw it: an IP address, or
	// uid:1000 over a unix socket.
	Peer string
}

// MaxEvictions is the number of evictions that a node remembers. Beyond it, the eviction that ends
// first is dropped.
const MaxEvictions = 64

// NodeUse is the use of a node by the system, the agent and other programs, without its tasks.
type NodeUse struct {
	CPU    int64 // milli-cores, as a mean over about ten seconds
	Memory int64 // bytes, without page cache
}

// Bounds on how often a node's use outside of its tasks is told. A change counts that is larger
// than one part in OccupiedPart of the node's capacity, or reaches OccupiedMemory.
const (
	OccupiedPart   = 20
	OccupiedMemory = int64(1) << 30 // bytes
	OccupiedEvery  = 10 * time.Second
)

// Resources returns the use as amounts of resources.
func (u NodeUse) Resources() Resources { return Resources{CPU: u.CPU, Memory: u.Memory} }

// Differs reports whether the use differs enough from an earlier one to be told, on a node of a
// capacity.
func (u NodeUse) Differs(was NodeUse, capacity Resources) bool {
	cpu, memory := distance(u.CPU, was.CPU), distance(u.Memory, was.Memory)
	return cpu > capacity[CPU]/OccupiedPart || memory > capacity[Memory]/OccupiedPart || memory >= OccupiedMemory
}

// distance returns the distance of two amounts that are not negative.
func distance(a, b int64) int64 { return max(a, b) - min(a, b) }

func (u NodeUse) validate(field string) error {
	if u.CPU < 0 || u.CPU > MaxNodeCPU {
		return Invalid(field+".cpu", "is %d milli-cores; 0 to %d are possible", u.CPU, MaxNodeCPU)
	}
	if u.Memory < 0 || u.Memory > MaxNodeMemory {
		return Invalid(field+".memory", "is %d bytes; 0 to %d are possible", u.Memory, MaxNodeMemory)
	}
	return nil
}

// Bounds on the facts that a node reports. No real machine is larger, and a node that claimed more
// would keep all others from being counted.
const (
	MaxNodeCPU    = int64(100_000) * 1000 // milli-cores
	MaxNodeMemory = int64(1) << 50        // bytes
	MaxNodeOther  = int64(1) << 50        // of a custom resource
	MaxNodeKey    = 64                    // characters of Key, Session and Peer, each
	MaxSequence   = uint64(1) << 40       // of a report; enough for one report per millisecond for 34 years
)

// NodeStatus is the derived state of a node. It is replicated but not stored.
type NodeStatus struct {
	ID        string
	Allocated Resources
	Tasks     int32
	// SickUntil is set when the node could not start its last two tasks: it takes no tasks until
	// then. Unix nanoseconds; 0 means that the node is not sick.
	SickUntil int64
}

// Validate reports the first field that is wrong.
func (n *Node) Validate() error {
	if err := ValidateID("node", n.ID); err != nil {
		return err
	}
	if len(n.Address) > 256 {
		return Invalid("address", "is longer than 256 characters")
	}
	if n.Incarnation == 0 {
		return Invalid("incarnation", "is 0; an agent counts its starts from 1")
	}
	if err := n.validateKey(); err != nil {
		return err
	}
	if err := n.Capacity.Validate("capacity"); err != nil {
		return err
	}
	if err := n.Capacity.validateOfNode("capacity"); err != nil {
		return err
	}
	for _, name := range n.Capacity.Names() {
		if Extended(name) {
			return Invalid("capacity."+name, "cannot be set: the node's QoS agent offers it; leave it out")
		}
	}
	if len(n.Attributes) > 256 {
		return Invalid("attributes", "has %d entries; at most 256 are possible", len(n.Attributes))
	}
	for _, key := range slices.Sorted(maps.Keys(n.Attributes)) {
		if key == "" || len(key) > 128 || len(n.Attributes[key]) > 1024 {
			return Invalid("attributes", "%q: a key has 1 to 128 characters and a value at most 1024", key)
		}
	}
	return n.Facts.Validate("facts")
}

// validateKey checks the form alone; a gateway checks that the agent holds the key.
func (n *Node) validateKey() error {
	for _, text := range []struct{ field, value string }{{"key", n.Key}, {"session", n.Session}, {"peer", n.Peer}} {
		if len(text.value) > MaxNodeKey {
			return Invalid(text.field, "is %d bytes long; at most %d are possible", len(text.value), MaxNodeKey)
		}
	}
	if (n.Key == "") != (n.Session == "") {
		return Invalid("session", "goes with a key; give both, or neither")
	}
	return nil
}
