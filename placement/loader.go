package placement

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Loader fetches the instances of servers when a placement needs them (RFD 60, phase 2). With the
// zero value the fleet holds its instances. With functions that load, nothing may be booked on its
// servers.
//
// A placement waits for each call, and this package has no clock to end one. A loader with
// functions that load must therefore set Within; a fleet without it refuses requests. A Pool of
// package remote bounds the calls of any function, also of one that hangs, and sets Within:
//
//	fleet.Loader = pool.Loader(ctx, remote.Source{Instances: list})
type Loader struct {
	// Within is the longest time that Instances takes, or Batch for one server.
	Within time.Duration
	// Instances returns the instances of a server.
	Instances func(server string) ([]Instance, error)
	// Batch, if set, is called instead of Instances with all servers of a batch that need loading.
	// It returns an answer for each of them.
	Batch func(servers []string) []Loaded
	// Instance returns the server of an instance and the instance's owner.
	Instance func(id string) (server, owner string, err error)
	// Volumes, if set, returns the server that holds the volumes of an instance, which may have
	// ended. If it is nil, Instance is asked.
	Volumes func(id string) (server string, err error)
	// Spreads, if set, returns how the group of a request is spread over the whole fleet: an entry
	// for each of its spreads, constraints first. Without it a fleet that loads its instances
	// refuses requests with a spread.
	Spreads func(r *Request) ([]GroupSpread, error)
}

// Loaded is the answer for one server.
type Loaded struct {
	Instances []Instance
	Err       error
}

func (l *Loader) load(servers []string) []Loaded {
	if l.Batch != nil {
		out := l.Batch(servers)
		for len(out) < len(servers) {
			out = append(out, Loaded{Err: fmt.Errorf("the loader gave no answer for it")})
		}
		return out
	}
	out := make([]Loaded, len(servers))
	for i, id := range servers {
		out[i].Instances, out[i].Err = l.Instances(id)
	}
	return out
}

// validate refuses a loader without a bound on its calls.
func (l *Loader) validate() error {
	if (l.Instances != nil || l.Batch != nil) && l.Within <= 0 {
		return plimsoll.Invalid("loader.within", "is not set, so a call that hangs would never end; "+
			"bound the calls with a Pool of package remote, or set the time within which they answer")
	}
	return nil
}

// locate returns the slot and the owner of an instance; the slot is -1 if it is on no known server.
func (f *Fleet) locate(id string) (slot int32, owner string, err error) {
	if p, ok := f.instances[id]; ok {
		return p.slot, p.owner, nil
	}
	if t, ok := f.tickets[id]; ok && t.Instance != nil {
		return t.slot, t.Instance.Owner, nil
	}
	if f.Loader.Instance == nil {
		return -1, "", nil
	}
	server, owner, err := f.Loader.Instance(id)
	if err != nil {
		return -1, "", fmt.Errorf("look up instance %s: %w", id, err)
	}
	return f.Slot(server), owner, nil
}

// Ticket is an instance on its way to a server, where it does not exist yet. The ticket counts as
// the instance would, so that placements see each other (RFD 60's calculate-ticketed-vms).
type Ticket struct {
	ID       string // id of the instance to be
	Server   string
	Instance *Instance // nil: of unknown size; the server takes nothing else meanwhile
}

type ticket struct {
	Ticket
	kind   *Kind // nil: the ticket is not booked
	blocks bool  // the ticket is counted in row.tickets
	slot   int32
}

// AddTicket counts a ticket against its server until DropTicket. A ticket whose instance already
// exists counts nothing.
func (f *Fleet) AddTicket(t Ticket) error {
	slot := f.Slot(t.Server)
	if slot < 0 {
		return plimsoll.Invalid("ticket.server", "there is no server %q", t.Server)
	}
	if t.ID == "" {
		return plimsoll.Invalid("ticket.id", "is empty; give the id of the instance to be")
	}
	if t.Instance != nil {
		if err := t.Instance.Validate(); err != nil {
			return err
		}
	}
	f.DropTicket(t.ID)
	in := ticket{Ticket: t, slot: slot}
	if _, there := f.instances[t.ID]; !there {
		switch {
		case t.Instance == nil:
			in.blocks = true
			f.changing(slot)
			f.rows[slot].tickets++
		case !f.lazy():
			in.kind = f.Kind(t.Instance)
			f.Bind(slot, in.kind)
		}
	}
	f.tickets[t.ID] = in
	f.pending[slot] = append(f.pending[slot], t.ID)
	return nil
}

// arrived notes that an instance exists: its ticket counts nothing any more.
func (f *Fleet) arrived(id string) {
	t, ok := f.tickets[id]
	if !ok {
		return
	}
	if t.kind != nil {
		f.Unbind(t.slot, t.kind)
		f.Forget(t.kind)
	} else if t.blocks {
		f.changing(t.slot)
		f.rows[t.slot].tickets--
	}
	t.kind, t.blocks = nil, false
	f.tickets[id] = t
}

func (f *Fleet) lazy() bool { return f.Loader.Instances != nil || f.Loader.Batch != nil }

// DropTicket forgets a ticket, because its instance exists or will never exist.
func (f *Fleet) DropTicket(id string) {
	t, ok := f.tickets[id]
	if !ok {
		return
	}
	f.arrived(id)
	delete(f.tickets, id)
	list := f.pending[t.slot]
	for i := range list {
		if list[i] == id {
			f.pending[t.slot] = append(list[:i], list[i+1:]...)
			break
		}
	}
}

// applyTickets counts the tickets of servers whose instances were loaded for this batch, and drops
// servers with a ticket of unknown size.
func (b *Batch) applyTickets(set []int32) []int32 {
	f := b.fleet
	if len(f.tickets) == 0 {
		return set
	}
	kept := set[:0]
	for _, i := range set {
		slot := b.slots[i]
		if f.rows[slot].flags&loaded != 0 {
			for _, id := range f.pending[slot] {
				if _, there := b.ids[id]; !there && f.tickets[id].Instance != nil {
					in := f.tickets[id].Instance
					b.ids[id] = place{slot: slot, owner: in.Owner}
					f.holdOne(slot, in)
				}
			}
			f.renew(slot)
		}
		if f.rows[slot].tickets == 0 {
			kept = append(kept, i)
		}
	}
	return kept
}
