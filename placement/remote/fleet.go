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

// Part is a part of a fleet: an evaluator with the servers that it stands beside.
type Part struct {
	Name      string // for people, such as its address; empty if there is only one
	Evaluator PartEvaluator
}

// PartError is why an evaluator could not be asked.
type PartError struct {
	Name string
	Err  error
}

// FleetOptions bound the calls of evaluators.
type FleetOptions struct {
	Tries   int                          // of each call; 0: DefaultTries
	Timeout time.Duration                // of each try; 0: DefaultTryTimeout
	Pause   plimsoll.Backoff             // between tries; zero: DefaultPause
	Tell    func(part string, err error) // is told of each try that failed and comes again; nil: nobody is
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

// Fleet places over the servers of several evaluators. It keeps the servers that were listed last,
// and which evaluators have failed, so make one for placements that follow each other at once. It
// is not safe for concurrent use.
//
//	parts := []remote.Part{{Name: "a", Evaluator: a}, {Name: "b", Evaluator: b}}
//	fleet, err := remote.NewFleet(parts, remote.FleetOptions{})
//	result, err := fleet.Place(ctx, rand.NewPCG(1, 2), &remote.Order{Request: request})
type Fleet struct {
	parts   []*part
	options FleetOptions
	home    map[string]homeOf // by server: where it was listed first
}

// part is what a Fleet knows of a Part.
type part struct {
	Part
	query   placement.Query
	listed  bool // servers are those that match the query
	servers []placement.Server
	failed  error // why it is not asked any more; nil: it is
}

// homeOf is a place in part.servers.
type homeOf struct {
	part *part
	at   int
}

// NewFleet returns a fleet of which nothing is listed yet.
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

// Failed returns the evaluators that are not asked any more, because they did not answer.
func (f *Fleet) Failed() []PartError {
	var out []PartError
	for _, p := range f.parts {
		if p.failed != nil {
			out = append(out, PartError{p.Name, p.failed})
		}
	}
	return out
}

// Place has the servers evaluated in batches, each by the evaluator that stands beside them, and
// chooses the best of the first batch in which one is left. The order of batches, and of the
// servers in them, follows from rng. Only when every server was looked at is the answer none, and
// the steps, added up over all batches, say why.
//
// A call that fails, or does not end in time, is tried again a few times: it changes nothing where
// it is answered. An evaluator that does not answer then is left out, and Result.Failed names it.
// If no server of the others takes the request, or if it bounds how its group is spread, that is an
// error, and nothing is placed.
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
	d, err := f.newDealer(chain, o)
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
			return Result{}, p.Err // its servers might take it
		}
	}
	return d.result, nil
}

// List returns the servers that match a query. Those of evaluators that do not answer are missing;
// Failed names these.
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

// list has the servers listed that match a query, of each evaluator once.
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
	f.home = map[string]homeOf{}
	for _, p := range f.parts {
		if p.failed != nil {
			p.servers = nil
		}
		for i := range p.servers {
			p.servers[i].Instances = nil
			if _, twice := f.home[p.servers[i].ID]; !twice {
				f.home[p.servers[i].ID] = homeOf{p, i}
			}
		}
	}
	return nil
}

// each asks all evaluators at once. It fails if none is left, or for a reason that is the caller's.
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

// about is an error of an evaluator.
func (p *part) about(op string, err error) error {
	msg := ""
	if p.Name != "" {
		msg = "evaluator " + p.Name
	}
	return &plimsoll.Error{Code: plimsoll.CodeOf(err), Op: op, Msg: msg, Err: err}
}

// temporary reports whether what failed may work another time, or at another evaluator.
func temporary(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeInvalid, plimsoll.CodeNotFound, plimsoll.CodeDenied, plimsoll.CodeUnauthenticated,
		plimsoll.CodeUnimplemented:
		return false
	default:
		return true
	}
}

// try calls an evaluator until it answers, as often and as long as may be.
func (f *Fleet) try(ctx context.Context, p *part, ask func(context.Context) error) error {
	for n := 1; ; n++ {
		err := f.tryOnce(ctx, ask)
		if err == nil || n >= f.options.Tries || !temporary(err) || ctx.Err() != nil {
			return err
		}
		if f.options.Tell != nil {
			f.options.Tell(p.Name, err)
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

// Capacities returns what is left on servers, by id, with the tickets counted. The servers are
// those that were listed last; of another, and of one whose evaluator does not answer, the reason
// is given.
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
		h, known := f.home[id]
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

// names are the resource names of the servers that were listed, as far as there is room for names.
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

// errorOfBatch names a batch that could not be evaluated.
func (p *part) errorOfBatch(n int, b *Batch, err error) error {
	msg := fmt.Sprintf("batch %d, of %d servers with %q first, could not be evaluated", n, len(b.Servers),
		b.Servers[0].ID)
	if p.Name != "" {
		msg += " by " + p.Name
	}
	return &plimsoll.Error{Code: plimsoll.CodeOf(err), Op: "place", Msg: msg, Err: err}
}
