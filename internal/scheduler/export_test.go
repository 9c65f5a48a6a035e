package scheduler

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// The following methods ask the state itself.

func (c *Scheduler) Explain(s *state.State, ref state.Ref, node string) (Explanation, error) {
	sub := c.Subject(s, ref)
	return c.View(s).Explain(&sub, node)
}

func (c *Scheduler) Try(s *state.State, spec *plimsoll.JobSpec, group string, count int) (*Trial, error) {
	return c.View(s).Try(spec, group, count)
}

func (c *Scheduler) Capacities(s *state.State, nodes []string) ([]placement.Capacity, error) {
	return c.View(s).Capacities(nodes)
}

func (c *Scheduler) PlanMoves(s *state.State, spec *plimsoll.JobSpec, group string, limit int) (*MovePlan, error) {
	return c.View(s).PlanMoves(spec, group, limit)
}
