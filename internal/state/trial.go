package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Chain returns what chooses nodes.
func (s *State) Chain() *placement.Chain { return s.cfg.Chain }

// Ask returns what so many tasks of a group ask of the fleet, for a trial.
func Ask(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec, count int) placement.Ask {
	return placement.Ask{Request: *request(spec, g), Labels: spec.Labels, Count: count}
}

// Leaf returns the queue that a job would go to, or why it would not be taken.
func (s *State) Leaf(path string) (*Queue, error) { return s.leafFor(path) }
