package placement

import (
	"errors"
	"fmt"
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// Ask is what a trial places: so many instances of a request, one after another.
type Ask struct {
	Request Request
	Labels  map[string]string // of the job that the instances belong to
	Count   int
}

// Tried is what came of an Ask.
type Tried struct {
	Placed  []Placed     // in their order
	Why     *Explanation // why the next one finds no server; nil: all have found one, or it is not known
	Stopped bool         // the bound on work was reached before it was known whether the others fit

	names []string // of the resources
	free  []int64  // of the servers after each placement, resource by resource; absent: the server does not have it
}

// Placed is an instance that a trial has placed.
type Placed struct {
	Server string
	Score  float64
}

const absent = math.MinInt64

// Free returns what the i-th placement would leave on its server.
func (t *Tried) Free(i int) plimsoll.Resources {
	r := plimsoll.Resources{}
	for k, name := range t.names {
		if n := t.free[i*len(t.names)+k]; n != absent {
			r[name] = n
		}
	}
	return r
}

// looksOfOne is what a placement costs beside its looks, in looks.
const looksOfOne = 10

// explainLooks is what it costs to say why one server is refused, in looks.
const explainLooks = 8

// Try places what is asked for, ask by ask, each instance booked before the next one is placed, and
// then takes all of it back, so that the fleet is as it was. It says where the instances would go,
// how many fit, and why the first that does not fit finds no server.
//
// looks bounds the work, in servers looked at; 0: no bound. The order of drawing moves on: use a
// placer of its own if that of others must not be touched. The fleet must hold its instances.
func (pl *Placer) Try(c *Chain, asks []Ask, now int64, looks int) ([]Tried, error) {
	f := pl.fleet
	if f.lazy() {
		return nil, errors.New(
			"a trial books instances, which a fleet that loads them cannot do; give its servers their instances",
		)
	}
	t := trial{fleet: f, moves: f.moves, names: *f.Names, domains: len(f.domains)}
	defer t.end()
	for i := range asks {
		if err := t.prepare(c, &asks[i]); err != nil {
			return nil, plimsoll.Within(fmt.Sprintf("asks[%d]", i), err)
		}
	}
	if looks <= 0 {
		looks = math.MaxInt
	}
	out := make([]Tried, len(asks))
	for i := range asks {
		looks = t.place(pl, i, asks[i].Count, now, looks, &out[i])
	}
	return out, nil
}

// trial is what is to be taken back.
type trial struct {
	fleet    *Fleet
	moves    uint64
	names    Names
	domains  int
	prepared []*Prepared
	kinds    []*Kind // as prepared
	versions []version
	booked   []booking
}

type version struct {
	tag uint32
	n   uint64
}

type booking struct {
	slot int32
	kind *Kind
}

func (t *trial) prepare(c *Chain, ask *Ask) error {
	r := &ask.Request
	p, err := c.Prepare(t.fleet, r)
	if err != nil {
		return err
	}
	in := Instance{Owner: r.Owner, Job: r.Job, Labels: ask.Labels, Resources: r.Resources}
	if len(r.Constraints.Spread)+len(r.Preferences.Spread) > 0 {
		in.Group = r.Group
	}
	kind := t.fleet.Kind(&in)
	t.prepared, t.kinds = append(t.prepared, p), append(t.kinds, kind)
	for _, tag := range append([]uint32{kind.owner}, kind.tags...) {
		t.versions = append(t.versions, version{tag, t.fleet.tags.info[tag].version})
	}
	return nil
}

// place places so many instances of an ask and returns what is left of the bound on work.
func (t *trial) place(pl *Placer, ask, count int, now int64, looks int, out *Tried) int {
	f, p := t.fleet, t.prepared[ask]
	out.names = f.Names.names
	cost := looksOfOne
	for _, c := range p.counters() {
		cost += f.valuesOf(c.domain) / 16 // to find the value with the fewest
	}
	for range count {
		if looks <= 0 {
			out.Stopped = true
			return looks
		}
		choice := pl.Place(p, now)
		looks -= cost + choice.Looked
		if choice.Slot < 0 {
			x := pl.Explain(p, now)
			out.Why = &x
			return looks - explainLooks*f.Len()
		}
		f.Bind(choice.Slot, t.kinds[ask])
		t.booked = append(t.booked, booking{choice.Slot, t.kinds[ask]})
		out.Placed = append(out.Placed, Placed{Server: f.ids[choice.Slot], Score: choice.Score})
		for k := range out.names {
			n := f.Free(choice.Slot, k)
			if k >= firstCustom && f.classes[f.rows[choice.Slot].class].whole[k] == 0 {
				n = absent
			}
			out.free = append(out.free, n)
		}
	}
	return looks
}

// end takes everything back: no request that waits may notice that something has come and gone.
func (t *trial) end() {
	f := t.fleet
	for i := len(t.booked) - 1; i >= 0; i-- {
		f.Unbind(t.booked[i].slot, t.booked[i].kind)
	}
	for i := len(t.versions) - 1; i >= 0; i-- {
		f.tags.info[t.versions[i].tag].version = t.versions[i].n
	}
	f.moves = t.moves
	for i, p := range t.prepared {
		f.Forget(t.kinds[i])
		p.Release()
	}
	*f.Names = t.names
	if len(f.domains) > t.domains {
		clear(f.domains[t.domains:])
		f.domains = f.domains[:t.domains]
	}
}
