package remote

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// PartEvaluator is an evaluator with a list of its own servers. Local is one, and Client calls one.
type PartEvaluator interface {
	Evaluator
	// ListServers returns the evaluator's servers without their instances. It may leave out servers
	// that do not match the query.
	ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error)
	// CountSpread counts the group of a request on the evaluator's servers: a tally for each
	// spread.
	CountSpread(ctx context.Context, q *SpreadQuestion) ([]placement.SpreadTally, error)
	// Capacity returns the amounts left on servers, in their order.
	Capacity(ctx context.Context, q *CapacityQuestion) ([]Capacity, error)
}

// SpreadQuestion asks how the group of a request is spread.
type SpreadQuestion struct {
	Request placement.Request
	Tickets []placement.Ticket // tickets for servers of other evaluators are ignored
	Chain   Chain
	Names   []string // resource names of the whole fleet
	Now     int64    // Unix seconds
}

// CapacityQuestion asks for the amounts left on servers.
type CapacityQuestion struct {
	Servers []placement.Server // their Instances are ignored
	Tickets []placement.Ticket // for these servers
	Names   []string           // resource names of the whole fleet
	Now     int64              // Unix seconds
}

// Capacity has the amounts left on a server: RFD 60's three attributes and nothing else.
type Capacity struct {
	CPU, Memory, Disk int64  // in the units of plimsoll.Resources; negative if more is booked
	Uncounted         string // why there are no amounts; empty: there are
}

// Resources returns the amounts by name; nil if there are none.
func (c *Capacity) Resources() plimsoll.Resources {
	if c.Uncounted != "" {
		return nil
	}
	return plimsoll.Resources{plimsoll.CPU: c.CPU, plimsoll.Memory: c.Memory, plimsoll.Disk: c.Disk}
}

func checkCounts(servers, tickets, names int) error {
	switch {
	case servers > MaxServers:
		return plimsoll.Invalid("servers", "has %d entries; at most %d are possible at once", servers, MaxServers)
	case tickets > MaxTickets:
		return plimsoll.Invalid("tickets", "has %d entries; at most %d are possible", tickets, MaxTickets)
	case names > plimsoll.MaxResourceNames:
		return plimsoll.Invalid("resourceNames", "has %d entries; at most %d are possible", names,
			plimsoll.MaxResourceNames)
	}
	return nil
}

// ListServers returns the evaluator's own servers that match the query.
func (l *Local) ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	if l.config.Servers == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeUnimplemented,
			"this evaluator does not know which servers are its own; ask where they are known")
	}
	return l.config.Servers(ctx, q)
}

// CountSpread counts the instances of the request's group on the servers of this evaluator. If the
// instances of one server cannot be loaded it fails, because the count would be wrong.
func (l *Local) CountSpread(ctx context.Context, q *SpreadQuestion) ([]placement.SpreadTally, error) {
	if err := checkCounts(0, len(q.Tickets), len(q.Names)); err != nil {
		return nil, err
	}
	names, stages, err := l.stages(q.Names)
	if err != nil {
		return nil, err
	}
	chain, err := l.chain(&q.Chain, stages)
	if err != nil {
		return nil, err
	}
	servers, err := l.ListServers(ctx, placement.Query{})
	if err != nil {
		return nil, err
	}
	runs, err := l.counted(ctx, servers, &q.Request)
	if err != nil {
		return nil, err
	}
	f := placement.NewFleet(names)
	for i := range servers {
		record := servers[i]
		record.Instances = runs[record.ID]
		f.Put(int32(i), &record)
	}
	for i := range q.Tickets {
		if f.Slot(q.Tickets[i].Server) < 0 {
			continue
		}
		if err := f.AddTicket(q.Tickets[i]); err != nil {
			return nil, err
		}
	}
	p, err := chain.Prepare(f, &q.Request)
	if err != nil {
		return nil, err
	}
	return placement.NewPlacer(f, nil).Spreads(p, q.Now), nil
}

// counted returns the instances of a request's group by server. It returns all other instances too
// if their places decide which servers are eligible.
func (l *Local) counted(
	ctx context.Context, servers []placement.Server, r *placement.Request,
) (map[string][]placement.Instance, error) {
	c := &r.Constraints
	all := len(c.Near)+len(c.Far)+len(c.VolumesFrom) > 0
	if l.config.Source.Group != nil && !all {
		return l.config.Source.Group(ctx, r.Job, r.Group)
	}
	ids := make([]string, len(servers))
	for i := range servers {
		ids[i] = servers[i].ID
	}
	out := map[string][]placement.Instance{}
	for i, loaded := range l.config.Pool.batch(ctx, l.config.Source, ids) {
		if loaded.Err != nil {
			return nil, plimsoll.Errorf(plimsoll.CodeUnavailable,
				"the instances of server %q could not be loaded, so the group cannot be counted: %s", ids[i], loaded.Err)
		}
		for _, in := range loaded.Instances {
			if all || in.Job == r.Job && in.Group == r.Group {
				out[ids[i]] = append(out[ids[i]], in)
			}
		}
	}
	return out, nil
}

// Capacity loads the instances of the servers and returns the amounts left.
func (l *Local) Capacity(ctx context.Context, q *CapacityQuestion) ([]Capacity, error) {
	if err := checkCounts(len(q.Servers), len(q.Tickets), len(q.Names)); err != nil {
		return nil, err
	}
	names, stages, err := l.stages(q.Names)
	if err != nil {
		return nil, err
	}
	chain, err := placement.CapacityChain(stages)
	if err != nil {
		return nil, err
	}
	f, slots, err := l.fleet(ctx, names, q.Servers, q.Tickets)
	if err != nil {
		return nil, err
	}
	list, err := placement.NewPlacer(f, nil).Capacities(chain, slots, q.Now)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("calculate capacities: %w", context.Cause(ctx)) // some loads failed for lack of time
	}
	out := make([]Capacity, len(list))
	for i := range list {
		free := list[i].Free
		out[i] = Capacity{free[plimsoll.CPU], free[plimsoll.Memory], free[plimsoll.Disk], list[i].Why}
	}
	return out, nil
}
