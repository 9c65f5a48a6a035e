package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// The bounds of pins.
const (
	maxPins     = 64
	pinTime     = time.Minute // from the last page
	maxPinBytes = 256 << 20   // what pins keep from being dropped
)

// pins are the states that are kept for the next pages of lists. All lists of a version share one.
//
// A pin keeps the records that have been replaced since: its cost is the bytes written to the copy
// since it was made. When that exceeds maxPinBytes the oldest pins go. When there are maxPins, a
// list that wants another one is refused; those under way are not disturbed. Pins do not know their
// callers: one caller can hold all of them, and the others are told to try again. A list without a
// pin is never refused for that.
type pins struct {
	mu struct {
		sync.Mutex
		held []pin // the oldest version first
	}
}

// pin is a state with the time until which it is kept.
type pin struct {
	snapshot *replica.Snapshot
	made     time.Time
	until    time.Time
}

// take keeps a state, and returns the time until which it is kept.
func (p *pins) take(s, latest *replica.Snapshot, now time.Time) (until time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(latest, now)
	until = now.Add(pinTime)
	for i := range p.mu.held {
		if p.mu.held[i].snapshot.Version() == s.Version() {
			p.mu.held[i].until = until
			return until, nil
		}
	}
	if len(p.mu.held) == maxPins {
		return time.Time{}, plimsoll.Errorf(plimsoll.CodeExhausted,
			"this gateway holds %d pinned states, as many as it may; list without pin, or try again within %s",
			maxPins, pinTime)
	}
	at := len(p.mu.held)
	for at > 0 && s.Revision() < p.mu.held[at-1].snapshot.Revision() {
		at--
	}
	p.mu.held = append(p.mu.held, pin{})
	copy(p.mu.held[at+1:], p.mu.held[at:])
	p.mu.held[at] = pin{snapshot: s, made: now, until: until}
	return until, nil
}

// find returns the pin of a version, and keeps it longer.
func (p *pins) find(v plimsoll.Version, latest *replica.Snapshot, now time.Time) (pin, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(latest, now)
	for i := range p.mu.held {
		if held := &p.mu.held[i]; held.snapshot.Version() == v {
			held.until = now.Add(pinTime)
			return *held, nil
		}
	}
	return pin{}, plimsoll.Errorf(plimsoll.CodeStale,
		"the pinned state is no longer held: it is kept for %s from the last page, and less while much changes; begin again",
		pinTime)
}

// expire drops the pins whose time is over, and the oldest ones while all cost too much.
func (p *pins) expire(latest *replica.Snapshot, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(latest, now)
}

// drop is expire. A pin of a copy that was replaced goes too, since it may keep that whole copy.
// The caller holds mu.
func (p *pins) drop(latest *replica.Snapshot, now time.Time) {
	kept := p.mu.held[:0]
	for _, held := range p.mu.held {
		written, same := latest.WrittenSince(held.snapshot)
		if same && written <= maxPinBytes && now.Before(held.until) {
			kept = append(kept, held)
		}
	}
	clear(p.mu.held[len(kept):])
	p.mu.held = kept
}

// stats returns the number of pins and the bytes that they keep from being dropped.
func (p *pins) stats(latest *replica.Snapshot) (n int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.mu.held {
		written, _ := latest.WrittenSince(p.mu.held[i].snapshot)
		bytes = max(bytes, written) // what the oldest keeps holds what the others do
	}
	return len(p.mu.held), bytes
}

// pinCheck is the interval at which pins are looked at, so that those that nobody asks for go.
const pinCheck = 5 * time.Second

// expirePins drops pins until its context ends.
func (g *Gateway) expirePins(ctx context.Context) error {
	ticker := time.NewTicker(pinCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			g.pins.expire(g.replica.Latest(), now)
		}
	}
}
