package plimsoll

import (
	"maps"
	"slices"
)

// Trait is the value of a trait: a flag, or one or several words. A word means the same as a list
// of that single word.
type Trait struct {
	Flag  bool
	Words []string // nil: the trait is a flag
}

// Matches reports whether a node's value of a trait satisfies t: the same flag, or at least one
// word in common. A flag never matches a word. (RFD 60's hard-filter-traits.)
func (t Trait) Matches(node Trait) bool {
	if t.Words == nil || node.Words == nil {
		return t.Words == nil && node.Words == nil && t.Flag == node.Flag
	}
	return slices.ContainsFunc(t.Words, func(w string) bool { return slices.Contains(node.Words, w) })
}

// PlatformRange bounds the platform of a node. Both maps have a release, such as 7.0, as the key
// and a stamp, such as 20260114T101500Z, as the value. The empty release stands for all releases.
// Stamps are compared as text. (RFD 60's hard-filter-platform-versions.)
type PlatformRange struct {
	Min, Max map[string]string
}

// Selector names tasks: one task by its id, all tasks of a job, or those of jobs with a label.
// Exactly one field is set.
type Selector struct {
	Task  string
	Job   string
	Label string // key=value
}

// Spread asks that the tasks of a group are distributed evenly over the values of a node
// attribute, such as rack or zone; "node" is the node itself. As a constraint, no value may hold
// more than MaxSkew tasks above the value with the fewest.
type Spread struct {
	By      string
	MaxSkew int32 // a constraint: from 1; a preference: not used
}

// ReservoirUse says how a group uses reservoir nodes, which are kept back until no other node is
// left.
type ReservoirUse uint8

// The uses of reservoir nodes.
const (
	ReservoirLast  ReservoirUse = iota // when no other node is left
	ReservoirNever                     // not at all
	ReservoirOnly                      // no other nodes

	numReservoirUses
)

var reservoirNames = [numReservoirUses]string{"last", "never", "only"}

// Known reports whether this version has the use.
func (u ReservoirUse) Known() bool { return u < numReservoirUses }

// String returns the word of the job file.
func (u ReservoirUse) String() string { return wordOf(reservoirNames[:], u) }

// ParseReservoirUse reads a word of the job file; ok is false for an unknown one.
func ParseReservoirUse(s string) (use ReservoirUse, ok bool) {
	i := slices.Index(reservoirNames[:], s)
	return ReservoirUse(max(i, 0)), i >= 0
}

// Strategy says which nodes score highest; RFD 60's server spread.
type Strategy uint8

// The strategies.
const (
	StrategyDefault     Strategy = iota // as the chain is configured: packed
	StrategyPack                        // the node with the least free memory that still has room (min-ram)
	StrategySpread                      // the node with the most free memory (max-ram)
	StrategyFewestOwner                 // the node with the fewest tasks of the owner (min-owner)
	StrategyRandom                      // any

	numStrategies
)

var strategyNames = [numStrategies]string{"default", "pack", "spread", "fewest-of-owner", "random"}

// Known reports whether this version has the strategy.
func (s Strategy) Known() bool { return s < numStrategies }

// String returns the word of the job file.
func (s Strategy) String() string { return wordOf(strategyNames[:], s) }

// ParseStrategy reads a word of the job file; ok is false for an unknown one.
func ParseStrategy(s string) (strategy Strategy, ok bool) {
	i := slices.Index(strategyNames[:], s)
	return Strategy(max(i, 0)), i >= 0
}

// Constraints say which nodes may take the tasks of a group. Its zero value allows every node
// without traits and without over-provisioning.
type Constraints struct {
	// Traits are exactly the traits of the node, each with a value that matches.
	Traits map[string]Trait
	// Networks is a list of alternatives: of each entry, at least one network is up on the node.
	Networks [][]string
	// Platform bounds the platform that the node runs.
	Platform PlatformRange
	// VolumesFrom are ids of tasks. The node holds all of them.
	VolumesFrom []string
	// Near: of each entry, the node holds at least one task. Far: it holds no task of any entry.
	Near, Far []Selector
	// Spread says how evenly the group's tasks must be distributed.
	Spread []Spread
	// Nodes are ids of nodes, with * and ? as in a shell. Empty allows every node.
	Nodes []string
	// Reservoir says whether reservoir nodes may be used.
	Reservoir ReservoirUse
	// Class is the over-provisioning by resource name. The node's must be equal, so without a class
	// the node has none.
	Class map[string]float64
	// Where is an expression over the node, such as node.labels.zone == "a".
	Where string
}

// IsZero reports whether nothing is constrained.
func (c *Constraints) IsZero() bool {
	return len(c.Traits) == 0 && len(c.Networks) == 0 &&
		len(c.Platform.Min) == 0 && len(c.Platform.Max) == 0 && len(c.VolumesFrom) == 0 &&
		len(c.Near) == 0 && len(c.Far) == 0 && len(c.Spread) == 0 && len(c.Nodes) == 0 &&
		c.Reservoir == 0 && len(c.Class) == 0 && c.Where == ""
}

// Preferences order the nodes that may take the tasks of a group. They never keep a task from being
// placed.
type Preferences struct {
	Near, Far []Selector
	Spread    []Spread
	Strategy  Strategy
}

// IsZero reports whether nothing is preferred.
func (p *Preferences) IsZero() bool {
	return len(p.Near) == 0 && len(p.Far) == 0 && len(p.Spread) == 0 && p.Strategy == 0
}

// NodeFacts are the facts of a node, beside its capacity, that placement decides by. The zero
// value describes an ordinary node.
type NodeFacts struct {
	Traits        map[string]Trait
	Networks      map[string]bool    // by name: whether the network is up
	Release       string             // such as 7.0
	Platform      string             // stamp of the platform image, YYYYMMDDTHHMMSSZ
	Headnode      bool               // runs the control plane and takes no tasks
	Reservoir     bool               // used when no other node is left
	Reserve       map[string]float64 // by resource name: the part of the capacity kept back, from 0 to below 1
	Overprovision map[string]float64 // by resource name: how often an amount may be promised, above 0; none means 1
	LastBoot      int64              // Unix seconds; 0: not known
	NextReboot    int64              // Unix seconds; 0: no reboot is planned
	Metrics       []string           // metrics that its agent measures beside the built-in ones, sorted; for policies
	MaxTasks      int32              // the most tasks that it takes at once; 0: no bound
}

// IsZero reports whether the facts are those of an ordinary node.
func (f *NodeFacts) IsZero() bool {
	return len(f.Traits) == 0 && len(f.Networks) == 0 && f.Release == "" && f.Platform == "" &&
		!f.Headnode && !f.Reservoir && len(f.Reserve) == 0 && len(f.Overprovision) == 0 &&
		f.LastBoot == 0 && f.NextReboot == 0 && len(f.Metrics) == 0 && f.MaxTasks == 0
}

// Equal reports whether two nodes are the same to placement. An empty map equals a missing one.
func (f *NodeFacts) Equal(o *NodeFacts) bool {
	sameTrait := func(a, b Trait) bool {
		return a.Flag == b.Flag && (a.Words == nil) == (b.Words == nil) && slices.Equal(a.Words, b.Words)
	}
	return maps.EqualFunc(f.Traits, o.Traits, sameTrait) && maps.Equal(f.Networks, o.Networks) &&
		f.Release == o.Release && f.Platform == o.Platform &&
		f.Headnode == o.Headnode && f.Reservoir == o.Reservoir &&
		maps.Equal(f.Reserve, o.Reserve) && maps.Equal(f.Overprovision, o.Overprovision) &&
		f.LastBoot == o.LastBoot && f.NextReboot == o.NextReboot &&
		slices.Equal(f.Metrics, o.Metrics) && f.MaxTasks == o.MaxTasks
}
