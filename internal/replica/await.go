package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// proofAge is the age of the last proof at which Recent has another one made.
const proofAge = 250 * time.Millisecond

// freshness records when the copy was last proved complete: it held everything that was committed
// at that instant. A proof is the acknowledgement of a round, and its instant is the one at which
// the gateway asked for it. A snapshot is no proof: a relay may be behind, and streams share one.
type freshness struct {
	began  time.Time    // origin of the instants
	proved atomic.Int64 // nanoseconds after began; 0: there was no proof
}

// prove records a proof that was asked for at an instant. An older proof changes nothing.
func (f *freshness) prove(asked time.Time) {
	at := max(int64(asked.Sub(f.began)), 1)
	for was := f.proved.Load(); at > was && !f.proved.CompareAndSwap(was, at); was = f.proved.Load() {
	}
}

// age returns the time since the last proof; ok is false if there was none.
func (f *freshness) age(now time.Time) (age time.Duration, ok bool) {
	proved := f.proved.Load()
	return max(now.Sub(f.began)-time.Duration(proved), 0), proved != 0
}

// arrivals wakes the readers that wait for a version. The zero value is ready.
type arrivals struct {
	waiting atomic.Int32 // readers between enter and leave
	mu      struct {
		sync.Mutex
		next chan struct{} // closed with the next snapshot; nil: nobody has asked for it
	}
}

// next returns a channel that is closed after a snapshot was published.
func (a *arrivals) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.next == nil {
		a.mu.next = make(chan struct{})
	}
	return a.mu.next
}

// published wakes all readers. It is called after the snapshot can be seen. Without readers it
// costs one load.
func (a *arrivals) published() {
	if a.waiting.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.next != nil {
		close(a.mu.next)
		a.mu.next = nil
	}
}

// Recent returns the newest snapshot without a wait, and its age: the snapshot holds everything
// that was committed so long ago. With or without a leader it is answered from the copy; before the
// first proof that the copy is complete it fails with CodeUnavailable. When the age has passed a
// quarter of a second, Recent asks the leader for a new proof, which serves later calls: at most
// one round is under way.
func (f *Follower) Recent() (*Snapshot, time.Duration, error) {
	age, proved := f.fresh.age(time.Now()) // before the snapshot, which may be younger and never older
	s := f.Latest()
	if s == nil {
		return nil, 0, errNotConnected()
	}
	if (!proved || age > proofAge) && f.begin() {
		notify(f.wake)
	}
	if !proved {
		return nil, 0, plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the leader has not confirmed this gateway's copy yet; try again",
		)
	}
	return s, age, nil
}

// begin opens a round if none is under way, and reports whether it did.
func (f *Follower) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.pending.inFlight != nil || f.mu.pending.waiting != nil {
		return false
	}
	_, err := f.mu.pending.join()
	return err == nil
}

// AtLeast returns a snapshot that holds a version, and its age. It waits for one until ctx ends,
// and asks the leader for nothing. A copy of a later epoch holds every version of an earlier one.
func (f *Follower) AtLeast(ctx context.Context, version plimsoll.Version) (*Snapshot, time.Duration, error) {
	if s, age, err := f.Recent(); err == nil && s.Version().Holds(version) {
		return s, age, nil
	}
	f.arrivals.waiting.Add(1)
	defer f.arrivals.waiting.Add(-1)
	for {
		next := f.arrivals.next()
		if s, age, err := f.Recent(); err == nil && s.Version().Holds(version) {
			return s, age, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, 0, ended(ctx, "this gateway's copy has not reached the revision in time; try again")
		}
	}
}
