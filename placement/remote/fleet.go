package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Part is a part of a fleet: an evaluator and its servers.
type Part struct {
	Name      string // shown to users, such as its address; empty if there is only one part
	Evaluator PartEvaluator
}

// PartError says why an evaluator was left out.
type PartError struct {
	Name string
	Err  error
}

// FleetOptions bound the calls of evaluators.
type FleetOptions struct {
	Tries   int                          // tries of each call; 0: DefaultTries
	Timeout time.Duration                // timeout of each try; 0: DefaultTryTimeout
	Pause   plimsoll.Backoff             // pause between tries; zero: DefaultPause
	OnRetry func(part string, err error) // called with the error of each try that is repeated; nil: not called
}

// The defaults of FleetOptions.
const (
	DefaultTries      = 3
	DefaultTryTimeout = 10 * time.Second
)

// DefaultPause is the default of FleetOptions.Pause.
func DefaultPause() plimsoll.Backoff {
	return plimsoll.Backoff{First: 100 * time.Millisecond, Longest: time.Second}
}

// Fleet places over the servers of several evaluators. It keeps the servers that it listed last,
// and the evaluators that have failed. Make a new one when time has passed between placements. It
// is not safe for concurrent use.
//
//	parts := []remote.Part{{Name: "a", Evaluator: a}, {Name: "b", Evaluator: b}}
//	fleet, err := remote.NewFleet(parts, remote.FleetOptions{})
//	result, err := fleet.Place(ctx, rand.NewPCG(1, 2), &remote.Order{Request: request})
type Fleet struct {
	parts    []*part
	options  FleetOptions
	listings map[string]listing // by server id: the place where it was listed first
}

// part is a Part with its listed servers.
type part struct {
	Part
	query   placement.Query
	listed  bool // Invariant: if set, servers are those that match query
	servers []placement.Server
	failed  error // why the evaluator is left out; nil: it is not
}

// listing is a place in part.servers.
type listing struct {
	part *part
	at   int
}

// NewFleet returns a fleet that has listed no servers yet.
func NewFleet(parts []Part, o FleetOptions) (*Fleet, error) {
	if len(parts) == 0 {
		return nil, plimsoll.Invalid("evaluators", "are none; give at least one")
	}
	if o.Tries < 0 || o.Timeout < 0 {
		return nil, plimsoll.Invalid("options", "tries and timeout cannot be negative; 0 is the default of each")
	}
	if o.Tries == 0 {
		o.Tries = DefaultTries
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTryTimeout
	}
	if o.Pause == (plimsoll.Backoff{}) {
		o.Pause = DefaultPause()
	}
	f := &Fleet{options: o}
	for _, p := range parts {
		f.parts = append(f.parts, &part{Part: p})
	}
	return f, nil
}

// Failed returns the evaluators that are left out because they did not answer.
func (f *Fleet) Failed() []PartError {
	var out []PartError
	for _, p := range f.parts {
		if p.failed != nil {
			out = append(out, PartError{p.Name, p.failed})
		}
	}
	return out
}

// Place draws servers in batches and sends each batch to the evaluator of its servers. It chooses
// the best server of the first batch with a survivor. The order of batches and servers follows from
// rng. The answer is none only if every server was looked at. The steps, summed over all batches,
// then say why.
//
// A call of an evaluator changes nothing there, so a call that fails, or takes too long, is tried
// again a few times. An evaluator that still does not answer is left out, and Result.Failed names
// it. If no other server takes the request, or if the request bounds its spread, the missing
// evaluator is an error, and nothing is placed.
func (f *Fleet) Place(ctx context.Context, rng *rand.PCG, o *Order) (Result, error) {
	chain := o.Chain
	if chain == nil {
		chain = placement.Default()
	}
	query, err := o.query(chain)
	if err != nil {
		return Result{}, err
	}
	if err := f.list(ctx, query); err != nil {
		return Result{}, err
	}
	d, err := f.newBatcher(chain, o)
	if err != nil {
		return Result{}, err
	}
	if err := d.countSpreads(ctx); err != nil {
		return Result{}, err
	}
	if err := d.run(ctx, rng); err != nil {
		return Result{}, err
	}
	d.result.Steps, d.result.Failed = d.steps.Steps(), f.Failed()
	if d.result.Server == "" {
		for _, p := range d.result.Failed {
			return Result{}, p.Err // one of its servers could have taken the request
		}
	}
	return d.result, nil
}

// List returns the servers that match a query. Servers of evaluators that do not answer are
// missing; Failed names these evaluators.
func (f *Fleet) List(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	if err := f.list(ctx, q); err != nil {
		return nil, err
	}
	var out []placement.Server
	for _, p := range f.parts {
		out = append(out, p.servers...)
	}
	return out, nil
}

// list asks each evaluator for the servers that match a query, unless the last list was for the
// same query.
func (f *Fleet) list(ctx context.Context, q placement.Query) error {
	err := f.each(ctx, "list servers", func(ctx context.Context, p *part) error {
		if p.listed && reflect.DeepEqual(p.query, q) {
			return nil
		}
		list, err := p.Evaluator.ListServers(ctx, q)
		if err == nil {
			p.servers, p.query, p.listed = slices.Clone(list), q, true
		}
		return err
	})
	if err != nil {
		return err
	}
	f.listings = map[string]listing{}
	for _, p := range f.parts {
		if p.failed != nil {
			p.servers = nil
		}
		for i := range p.servers {
			p.servers[i].Instances = nil
			if _, twice := f.listings[p.servers[i].ID]; !twice {
				f.listings[p.servers[i].ID] = listing{p, i}
			}
		}
	}
	return nil
}

// each calls ask for all evaluators at once. It fails if no evaluator is left, or at the first
// error that another try or evaluator would repeat.
func (f *Fleet) each(ctx context.Context, op string, ask func(context.Context, *part) error) error {
	var asked sync.WaitGroup
	errs := make([]error, len(f.parts))
	for i, p := range f.parts {
		if p.failed == nil {
			asked.Go(func() { errs[i] = f.try(ctx, p, func(ctx context.Context) error { return ask(ctx, p) }) })
		}
	}
	asked.Wait()
	left := 0
	for i, p := range f.parts {
		if err := errs[i]; err != nil {
			p.failed = p.about(op, err)
			if !temporary(err) || ctx.Err() != nil {
				return p.failed
			}
		}
		if p.failed == nil {
			left++
		}
	}
	if left == 0 {
		return f.parts[0].failed
	}
	return nil
}

// about returns an error of an evaluator with its name.
func (p *part) about(op string, err error) error {
	msg := ""
	if p.Name != "" {
		msg = "evaluator " + p.Name
	}
	return &plimsoll.Error{Code: plimsoll.CodeOf(err), Op: op, Msg: msg, Err: err}
}

// temporary reports whether the same call may succeed at another time, or at another evaluator.
func temporary(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeInvalid, plimsoll.CodeNotFound, plimsoll.CodeDenied, plimsoll.CodeUnauthenticated,
		plimsoll.CodeUnimplemented:
		return false
	default:
		return true
	}
}

// try calls an evaluator until it answers, within the bounds of the options.
func (f *Fleet) try(ctx context.Context, p *part, ask func(context.Context) error) error {
	for n := 1; ; n++ {
		err := f.tryOnce(ctx, ask)
		if err == nil || n >= f.options.Tries || !temporary(err) || ctx.Err() != nil {
			return err
		}
		if f.options.OnRetry != nil {
			f.options.OnRetry(p.Name, err)
		}
		pause, cancel := context.WithTimeout(ctx, f.options.Pause.Delay(n))
		<-pause.Done()
		cancel()
		if ctx.Err() != nil {
			return err
		}
	}
}

func (f *Fleet) tryOnce(ctx context.Context, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, f.options.Timeout)
	defer cancel()
	err := ask(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return plimsoll.Errorf(plimsoll.CodeDeadline, "there was no answer within %s", f.options.Timeout)
	}
	return err
}

// Capacities returns the amounts left on servers, by id, with the tickets counted. It knows the
// servers that were listed last. Any other server, and one whose evaluator does not answer, gets a
// reason instead of amounts.
func (f *Fleet) Capacities(
	ctx context.Context, servers []string, tickets []placement.Ticket, now int64,
) map[string]Capacity {
	out, names := make(map[string]Capacity, len(servers)), f.names()
	onTheirWay := map[string][]placement.Ticket{}
	for _, t := range tickets {
		onTheirWay[t.Server] = append(onTheirWay[t.Server], t)
	}
	questions := map[*part][]*CapacityQuestion{}
	for _, id := range servers {
		if _, twice := out[id]; twice {
			continue
		}
		out[id] = Capacity{Uncounted: "no evaluator has listed it"}
		h, known := f.listings[id]
		if !known {
			continue
		}
		list := questions[h.part]
		if n := len(list); n == 0 || len(list[n-1].Servers) == MaxServers {
			list = append(list, &CapacityQuestion{Names: names, Now: now})
			questions[h.part] = list
		}
		q := list[len(list)-1]
		q.Servers = append(q.Servers, h.part.servers[h.at])
		q.Tickets = append(q.Tickets, onTheirWay[id]...)
	}
	for _, p := range f.parts {
		for _, q := range questions[p] {
			f.askCapacity(ctx, p, q, out)
		}
	}
	return out
}

func (f *Fleet) askCapacity(ctx context.Context, p *part, q *CapacityQuestion, out map[string]Capacity) {
	var list []Capacity
	err := p.failed
	if err == nil {
		err = f.try(ctx, p, func(ctx context.Context) (err error) {
			if list, err = p.Evaluator.Capacity(ctx, q); err == nil && len(list) != len(q.Servers) {
				err = plimsoll.Errorf(plimsoll.CodeInternal, "the evaluator's answer is about %d servers of %d",
					len(list), len(q.Servers))
			}
			return err
		})
	}
	for i := range q.Servers {
		if err != nil {
			out[q.Servers[i].ID] = Capacity{Uncounted: err.Error()}
			continue
		}
		out[q.Servers[i].ID] = list[i]
	}
}

// names returns the resource names of the listed servers, as far as there is room for names.
func (f *Fleet) names() []string {
	names := placement.NewNames()
	for _, p := range f.parts {
		for i := range p.servers {
			if r := p.servers[i].Capacity; names.Check("capacity", r) == nil {
				names.Amounts(r)
			}
		}
	}
	return namesOf(names)
}

func namesOf(names *placement.Names) []string {
	var out []string
	for i := range names.Len() {
		out = append(out, names.Name(i))
	}
	return out
}

// errorOfBatch returns an error that names a batch that could not be evaluated.
func (p *part) errorOfBatch(n int, b *Batch, err error) error {
	msg := fmt.Sprintf("batch %d, of %d servers with %q first, could not be evaluated", n, len(b.Servers),
		b.Servers[0].ID)
	if p.Name != "" {
		msg += " by " + p.Name
	}
	return &plimsoll.Error{Code: plimsoll.CodeOf(err), Op: "place", Msg: msg, Err: err}
}
