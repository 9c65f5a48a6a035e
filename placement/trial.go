package placement

import (
	"errors"
	"fmt"
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// Ask is a number of equal instances that Try places one after another.
type Ask struct {
	Request Request
	Labels  map[string]string // labels of the job that the instances belong to
	Count   int
}

// Tried is the result of one Ask.
type Tried struct {
	Placed  []Placed     // in the order of placement
	Why     *Explanation // why the next instance finds no server; nil: all were placed, or Stopped is set
	Stopped bool         // the bound on work was reached before all instances were tried

	names []string // resource names
	free  []int64  // amounts left on the servers after each placement, resource by resource; absent: not on the server
}

// Placed is an instance that Try has placed.
type Placed struct {
	Server string
	Score  float64
}

const absent = math.MinInt64

// Free returns the amounts that the i-th placement would leave on its server.
func (t *Tried) Free(i int) plimsoll.Resources {
	r := plimsoll.Resources{}
	for k, name := range t.names {
		if n := t.free[i*len(t.names)+k]; n != absent {
			r[name] = n
		}
	}
	return r
}

// looksOfOne is the cost of a placement beside its looks, in looks.
const looksOfOne = 10

// explainLooks is the cost of explaining why one server refuses a request, in looks.
const explainLooks = 8

// Try places the asks in their order, each instance booked before the next one is placed, and rolls
// all bookings back: the fleet is then as it was. The result says where the instances would go, how
// many fit, and why the first one that does not fit finds no server.
//
// looks bounds the work, in servers looked at; 0: no bound. Try advances the placer's random order,
// so use a separate placer if that order must not change. The fleet must hold its instances.
func (pl *Placer) Try(c *Chain, asks []Ask, now int64, looks int) ([]Tried, error) {
	f := pl.fleet
	if f.lazy() {
		return nil, errors.New(
			"a trial books instances, which a fleet that loads them cannot do; give its servers their instances",
		)
	}
	run := dryRun{fleet: f, moves: f.moves, names: *f.Names, domains: len(f.domains)}
	defer run.end()
	for i := range asks {
		if err := run.prepare(c, &asks[i]); err != nil {
			return nil, plimsoll.Within(fmt.Sprintf("asks[%d]", i), err)
		}
	}
	if looks <= 0 {
		looks = math.MaxInt
	}
	out := make([]Tried, len(asks))
	for i := range asks {
		looks = run.place(pl, i, asks[i].Count, now, looks, &out[i])
	}
	return out, nil
}

// dryRun holds the bookings of a trial or a plan of moves, and the state of the fleet before them.
// end restores that state.
type dryRun struct {
	fleet    *Fleet
	moves    uint64 // Fleet.moves before the bookings
	names    Names  // resource names before the requests
	domains  int    // number of domains before the requests
	prepared []*Prepared
	kinds    []*Kind   // by index of prepared: the kind of its instances
	versions []version // versions of the tags before the bookings
	booked   []booking // in the order of booking
}

type version struct {
	tag uint32
	n   uint64
}

type booking struct {
	slot int32
	kind *Kind
}

// prepare resolves an ask against the fleet.
func (d *dryRun) prepare(c *Chain, ask *Ask) error {
	r := &ask.Request
	p, err := c.Prepare(d.fleet, r)
	if err != nil {
		return err
	}
	in := Instance{Owner: r.Owner, Job: r.Job, Labels: ask.Labels, Resources: r.Resources}
	if len(r.Constraints.Spread)+len(r.Preferences.Spread) > 0 {
		in.Group = r.Group
	}
	kind := d.fleet.Kind(&in)
	d.prepared, d.kinds = append(d.prepared, p), append(d.kinds, kind)
	for _, tag := range append([]uint32{kind.owner}, kind.tags...) {
		d.versions = append(d.versions, version{tag, d.fleet.tags.info[tag].version})
	}
	return nil
}

// place places count instances of an ask and returns the rest of the bound on work.
func (d *dryRun) place(pl *Placer, ask, count int, now int64, looks int, out *Tried) int {
	f, p := d.fleet, d.prepared[ask]
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
		f.Bind(choice.Slot, d.kinds[ask])
		d.booked = append(d.booked, booking{choice.Slot, d.kinds[ask]})
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

// end restores the fleet. Versions are restored too, so that no waiting request is woken.
func (d *dryRun) end() {
	f := d.fleet
	for i := len(d.booked) - 1; i >= 0; i-- {
		f.Unbind(d.booked[i].slot, d.booked[i].kind)
	}
	for i := len(d.versions) - 1; i >= 0; i-- {
		f.tags.info[d.versions[i].tag].version = d.versions[i].n
	}
	f.moves = d.moves
	for i, p := range d.prepared {
		f.Forget(d.kinds[i])
		p.Release()
	}
	*f.Names = d.names
	if len(f.domains) > d.domains {
		clear(f.domains[d.domains:])
		f.domains = f.domains[:d.domains]
	}
}
