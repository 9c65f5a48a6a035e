package remote

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Bounds of one batch.
const (
	MaxServers    = 1000     // servers of a batch
	MaxTickets    = 10_000   // tickets of a batch
	MaxOwnerRules = 1000     // Settings.OwnerRules of a written-out chain
	MaxRules      = 64 << 10 // bytes of all rules; each server costs some nanoseconds for each byte
	MaxExpression = 64 << 10 // bytes of a written-out chain
	MaxBody       = 8 << 20  // bytes of a request, and of an answer
)

// Evaluator runs a chain over a batch of servers.
type Evaluator interface {
	Evaluate(ctx context.Context, b *Batch) (*Evaluation, error)
}

// Chain is a chain that the evaluator knows by name, or a written-out one.
type Chain struct {
	Name     string
	Text     placement.Expression // used if Name is empty
	Settings placement.Settings   // settings of Text, without Batch and All
}

// Batch is a question to an evaluator: which of these servers suit a request?
type Batch struct {
	Servers []placement.Server // in the order of drawing; their Instances are ignored
	Request placement.Request
	Tickets []placement.Ticket // for servers of the batch
	Chain   Chain
	Names   []string // resource names of the whole fleet
	Seed    uint64   // seed for random scores
	Now     int64    // Unix seconds
	// Spreads has the spread of the request's group over the whole fleet: an entry for each spread,
	// constraints first.
	Spreads []placement.GroupSpread
}

// Evaluation is the answer about a batch.
type Evaluation struct {
	Survivors []Survivor // best first
	Steps     []Step     // of the stages that ran
	Loads     int        // servers whose instances were loaded
	Peak      int        // most instances held at once
}

// Survivor is a server that passed the chain.
type Survivor struct {
	Place int // index in Batch.Servers
	Score float64
}

// Step is the step of one stage.
type Step struct {
	Place int // place of the stage in the chain
	placement.Step
}

func (b *Batch) validate() error {
	switch {
	case len(b.Servers) > MaxServers:
		return plimsoll.Invalid(
			"servers", "has %d entries; at most %d are possible in a batch", len(b.Servers), MaxServers,
		)
	case len(b.Tickets) > MaxTickets:
		return plimsoll.Invalid(
			"tickets", "has %d entries; at most %d are possible in a batch", len(b.Tickets), MaxTickets,
		)
	case len(b.Names) > plimsoll.MaxResourceNames:
		return plimsoll.Invalid(
			"resourceNames", "has %d entries; at most %d are possible", len(b.Names), plimsoll.MaxResourceNames,
		)
	case len(b.Chain.Settings.OwnerRules) > MaxOwnerRules:
		return plimsoll.Invalid(
			"chain.settings.ownerRules", "has %d entries; at most %d are possible", len(b.Chain.Settings.OwnerRules),
			MaxOwnerRules,
		)
	case b.Now < 0:
		return plimsoll.Invalid("now", "is negative; give Unix seconds")
	}
	size := 0
	for _, rule := range b.Chain.Settings.OwnerRules {
		size += len(rule)
	}
	if size > MaxRules {
		return plimsoll.Invalid(
			"chain.settings.ownerRules", "hold %d bytes; at most %d are possible together", size, MaxRules,
		)
	}
	return b.placeable()
}

// placeable refuses a request with a spread if the batch does not have the counts for it.
func (b *Batch) placeable() error {
	r := &b.Request
	if len(b.Spreads) == len(r.Constraints.Spread)+len(r.Preferences.Spread) {
		return nil
	}
	field := "preferences.spread"
	if len(r.Constraints.Spread) > 0 {
		field = "constraints.spread"
	}
	return plimsoll.Invalid(field,
		"needs the instances of the whole fleet, not of one batch; give a count for each spread")
}

// Config has the data and the chains of a Local.
type Config struct {
	Source      Source
	Pool        *Pool                           // nil: a pool with the default bounds
	Chains      map[string]*placement.Chain     // chains by name
	Stages      []placement.Stage               // stages of written-out chains; nil: placement.Stages()
	Definitions map[string]placement.Expression // expressions that written-out chains may name

	// Profile, if set, replaces Stages: it makes the stages of a fleet that uses names.
	Profile func(names *placement.Names) ([]placement.Stage, error)
	// Servers lists the servers whose instances the source knows; nil: the list is not known here.
	Servers Servers
}

// Local is an evaluator beside the data. It is safe for concurrent use if the functions of its
// source are.
type Local struct{ config Config }

// NewLocal returns an evaluator that loads instances from a source.
func NewLocal(c Config) (*Local, error) {
	if c.Source.Instances == nil {
		return nil, plimsoll.Invalid(
			"source.instances", "is not set; give the function that returns what runs on a server",
		)
	}
	if c.Pool == nil {
		p, err := NewPool(Options{})
		if err != nil {
			return nil, err
		}
		c.Pool = p
	}
	if c.Stages == nil {
		c.Stages = placement.Stages()
	}
	return &Local{config: c}, nil
}

// Evaluate runs the chain over the batch. Instances are loaded for the servers that pass the
// filters before load-instances. If ctx ends first, Evaluate fails.
func (l *Local) Evaluate(ctx context.Context, b *Batch) (*Evaluation, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	names, stages, err := l.stages(b.Names)
	if err != nil {
		return nil, err
	}
	chain, err := l.chain(&b.Chain, stages)
	if err != nil {
		return nil, err
	}
	f, slots, err := l.fleet(ctx, names, b.Servers, b.Tickets)
	if err != nil {
		return nil, err
	}
	if len(b.Spreads) > 0 {
		f.Loader.Spreads = func(*placement.Request) ([]placement.GroupSpread, error) { return b.Spreads, nil }
	}
	p, err := chain.Prepare(f, &b.Request)
	if err != nil {
		return nil, err
	}
	e := placement.NewPlacer(f, nil).Evaluate(p, slots, b.Seed, b.Now)
	if ctx.Err() != nil {
		// servers may have been dropped for lack of time
		return nil, fmt.Errorf("evaluate a batch: %w", context.Cause(ctx))
	}
	out := &Evaluation{Loads: e.Loads, Peak: e.Peak}
	for _, s := range e.Survivors {
		out.Survivors = append(out.Survivors, Survivor{Place: int(s.Slot), Score: s.Score})
	}
	for i, step := range e.Steps {
		out.Steps = append(out.Steps, Step{Place: e.Stages[i], Step: step})
	}
	return out, nil
}

func (l *Local) chain(c *Chain, stages []placement.Stage) (*placement.Chain, error) {
	if c.Name == "" {
		settings := c.Settings
		settings.Batch, settings.All = 0, false
		return placement.NewChain(c.Text, stages, l.config.Definitions, settings)
	}
	if chain := l.config.Chains[c.Name]; chain != nil {
		return chain, nil
	}
	return nil, plimsoll.Invalid(
		"chain.name", "the evaluator has no chain %q; give the name of one that it has, or write it out", c.Name,
	)
}

// stages returns the resource names of a fleet, with those that the caller gives, and the stages
// for its written-out chain.
func (l *Local) stages(given []string) (*placement.Names, []placement.Stage, error) {
	names, stages := placement.NewNames(), l.config.Stages
	if l.config.Profile != nil {
		own, err := l.config.Profile(names)
		if err != nil {
			return nil, nil, err
		}
		stages = own
	}
	known := plimsoll.Resources{}
	for _, name := range given {
		known[name] = 0
	}
	if err := known.Validate("resourceNames"); err != nil {
		return nil, nil, err
	}
	if err := names.Check("resourceNames", known); err != nil {
		return nil, nil, err
	}
	names.Amounts(known)
	return names, stages, nil
}

// fleet returns the servers of a batch as a fleet. The slot of a server is its place in the batch.
func (l *Local) fleet(
	ctx context.Context, names *placement.Names, servers []placement.Server, tickets []placement.Ticket,
) (*placement.Fleet, []int32, error) {
	f := placement.NewFleet(names)
	f.Loader = l.config.Pool.Loader(ctx, l.config.Source)
	slots := make([]int32, len(servers))
	for i := range servers {
		slots[i] = int32(i)
		record := servers[i]
		record.Instances = nil
		f.Put(slots[i], &record)
	}
	for i := range tickets {
		if err := f.AddTicket(tickets[i]); err != nil {
			return nil, nil, err
		}
	}
	return f, slots, nil
}
