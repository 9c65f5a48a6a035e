package placement

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Loader fetches what runs on servers when a placement needs it (RFD 60, phase 2). The zero value
// says that the fleet holds it already; with one, nothing else may be booked on its servers.
//
// A placement waits for each call, and this package has no clock to give one up with. So whoever
// gives functions that load says within which time they answer, and a fleet without that refuses
// requests. A Pool of package remote bounds calls of any function, also of one that hangs, and says
// its bound:
//
//	fleet.Loader = pool.Loader(ctx, remote.Source{Instances: list})
type Loader struct {
	// Within is how long Instances, or Batch for one server, takes at most.
	Within time.Duration
	// Instances returns what runs on a server.
	Instances func(server string) ([]Instance, error)
	// Batch, if set, is called instead with all servers of a batch that need loading, and answers
	// for each of them.
	Batch func(servers []string) []Loaded
	// Instance returns the server that an instance runs on, and its owner.
	Instance func(id string) (server, owner string, err error)
	// Volumes, if set, returns the server that holds the volumes of an instance, which may have
	// ended; otherwise Instance says it.
	Volumes func(id string) (server string, err error)
	// Spreads, if set, returns how the group of a request is spread over the whole fleet, an entry
	// for each of its spreads, constraints first. Without it a fleet that loads its instances
	// cannot place what is to be spread.
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

// validate refuses a loader that nobody bounds.
func (l *Loader) validate() error {
	if (l.Instances != nil || l.Batch != nil) && l.Within <= 0 {
		return plimsoll.Invalid("loader.within", "is not set, so a call that hangs would never end; "+
			"bound the calls with a Pool of package remote, or set the time within which they answer")
	}
	return nil
}

// locate returns where an instance is.
func (f *Fleet) locate(id string) (slot int32, owner string, err error) {
	if p, ok := f.inside[id]; ok {
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

// Ticket is an instance that is on its way to a server and does not exist there yet. It counts as
// if it did, so that placements see each other. (RFD 60's calculate-ticketed-vms.)
type Ticket struct {
	ID       string // of the instance to be
	Server   string
	Instance *Instance // nil: of unknown size; nothing else is placed on the server meanwhile
}

type ticket struct {
	Ticket
	kind   *Kind // if it is booked
	blocks bool  // it is counted in row.tickets
	slot   int32
}

// AddTicket counts a ticket against its server until DropTicket. One whose instance is there
// already counts nothing.
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
	if _, there := f.inside[t.ID]; !there {
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

// arrived says that an instance is there. A ticket for it counts nothing any more.
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

// DropTicket forgets a ticket, because its instance is there or will never be.
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

// applyTickets counts the tickets of servers whose instances were loaded for this batch.
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
