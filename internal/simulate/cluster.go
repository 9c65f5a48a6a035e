package simulate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

const second = int64(1e9)

// cluster is an engine and its nodes in virtual time.
type cluster struct {
	engine *engine.Engine
	out    engine.Batch
	now    int64 // Unix nanoseconds
	wake   int64 // time of the engine's next timer; 0: none
	lastID uint64
	turns  int
	bound  int          // tasks
	clock  func() int64 // nanoseconds; nil: turns are not measured
	spent  int64        // nanoseconds in turns

	// started is called for each task that has begun to run, ended for each attempt that has ended;
	// nil: nobody wants to know.
	started func(t *plimsoll.Task)
	ended   func(t *plimsoll.Task)

	reports  []engine.Command // of agents, not yet given to the engine
	answered map[uint64]error // refusals of the commands of the call under way
}

// newCluster returns a cluster without nodes.
func newCluster(cfg state.Config, queues plimsoll.QueueConfig, seed uint64, now int64) (*cluster, error) {
	cfg.TrustOwner = true // the workload says whose its jobs are, and no caller could say otherwise
	s, err := state.NewLoader(cfg, queues).End(now)
	if err != nil {
		return nil, fmt.Errorf("begin with these queues: %w", err)
	}
	return &cluster{
		engine: engine.New(engine.Config{Seed: seed}, s, 0, now), now: now, answered: map[uint64]error{},
	}, nil
}

func (c *cluster) state() *state.State { return c.engine.State() }

// do applies operations in one turn, and makes turns until nothing changes any more at this
// instant. It returns the refusals in the order of the operations. An operation that was applied
// has nil there.
func (c *cluster) do(operations ...engine.Operation) []error {
	clear(c.answered)
	first := c.lastID + 1
	commands := make([]engine.Command, len(operations))
	for i, op := range operations {
		c.lastID++
		commands[i] = engine.Command{ID: c.lastID, Do: op}
	}
	c.turn(commands)
	for len(c.reports) > 0 {
		commands, c.reports = c.reports, nil
		c.turn(commands)
	}
	refusals := make([]error, len(operations))
	for i := range operations {
		refusals[i] = c.answered[first+uint64(i)]
	}
	return refusals
}

// turn makes turns until no work is left, and lets the agents answer.
func (c *cluster) turn(commands []engine.Command) {
	for more := true; more; {
		var taken int
		began := c.read()
		taken, c.wake, more = c.engine.Turn(c.now, commands, &c.out)
		c.spent += c.read() - began
		commands = commands[taken:]
		c.turns++
		for i := range c.out.Replies {
			if r := &c.out.Replies[i]; r.Err != nil {
				c.answered[r.ID] = r.Err
			}
		}
		for i := range c.out.Changes.Tasks {
			c.obey(&c.out.Changes.Tasks[i])
		}
	}
}

func (c *cluster) read() int64 {
	if c.clock == nil {
		return 0
	}
	return c.clock()
}

// obey does for a changed task what its agent would do.
func (c *cluster) obey(t *plimsoll.Task) {
	switch t.State {
	case plimsoll.TaskBound:
		c.bound++
		c.report(t, plimsoll.TaskRunning, plimsoll.ResultNone)
	case plimsoll.TaskRunning:
		if c.started != nil {
			c.started(t)
		}
	case plimsoll.TaskStopping:
		c.report(t, plimsoll.TaskFinished, t.Result)
	case plimsoll.TaskFinished, plimsoll.TaskPending:
		if c.ended != nil && t.Attempt > 0 {
			c.ended(t)
		}
	}
}

// report adds the report of an agent, which the engine gets in its next turn.
func (c *cluster) report(t *plimsoll.Task, to plimsoll.TaskState, result plimsoll.TaskResult) {
	c.lastID++
	c.reports = append(c.reports, engine.Command{ID: c.lastID, Do: &engine.ReportTasks{
		Node: t.Node, Incarnation: 1,
		Reports: []engine.Report{{
			Job: t.Job, Group: t.Group, Index: t.Index,
			TaskReport: plimsoll.TaskReport{Attempt: t.Attempt, State: to, Result: result, At: c.now},
		}},
	}})
}

// advance lets virtual time go by until an instant, and wakes the engine whenever it asks for it.
func (c *cluster) advance(until int64) {
	for c.wake != 0 && c.wake <= until {
		c.now = max(c.now, c.wake)
		c.do()
	}
	c.now = max(c.now, until)
	c.do()
}

// node returns the operation by which a node joins, or changes.
func node(id string, capacity plimsoll.Resources, attributes map[string]string) *engine.RegisterNode {
	return &engine.RegisterNode{Gateway: "simulate", Node: plimsoll.Node{
		ID: id, Incarnation: 1, Capacity: capacity, Attributes: attributes,
	}}
}

// firstError returns the first refusal.
func firstError(refusals []error) error {
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
