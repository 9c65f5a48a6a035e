package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// followers are gateways that follow whichever of some processes leads.
type followers struct {
	all     []*replica.Follower
	resumed []chan bool // whether the copy of each became live without a snapshot
	stop    func()
}

// followAll begins to follow the process that leads now.
func followAll(t *testing.T, n int, leads func() string) *followers {
	t.Helper()
	fs := &followers{}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for i := range n {
		live := make(chan bool, 100)
		f, err := replica.NewFollower(replica.FollowerConfig{
			Gateway: fmt.Sprint("gw", i), Finder: finder(leads),
			MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
			Events: replica.FollowerEvents{Live: func(_, _ uint64, resumed bool) { live <- resumed }},
		})
		if err != nil {
			t.Fatal(err)
		}
		fs.all, fs.resumed = append(fs.all, f), append(fs.resumed, live)
		group.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	fs.stop = func() { cancel(); group.Wait() }
	return fs
}

type finder func() string

func (f finder) Find(context.Context) ([]string, error) { return []string{f()}, nil }

// A gateway whose copy is of the last leader goes on at the next one without a snapshot, if that
// one stood by: with the same content as a new copy, and with a history in which each earlier point
// is still valid. One after the other leads.
func TestCopiesGoOnAtTheNextLeader(t *testing.T) {
	s := newShared()
	var mu sync.Mutex
	first := runMember(t, s)
	<-first.led
	address := first.cfg.Listen
	leads := func() string {
		mu.Lock()
		defer mu.Unlock()
		return address
	}
	fs := followAll(t, 3, leads)
	defer func() { fs.stop() }()
	for _, live := range fs.resumed {
		<-live
	}
	generation := fs.all[0].Changes().Generation()
	last := first
	var points []replica.Point
	for turn := range 3 {
		next := runMember(t, s)
		<-next.following
		for i := range 3 {
			if _, err := fs.all[i].Do(t.Context(), submit(job(fmt.Sprintf("j%d-%d", turn, i), 3))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := fs.all[0].Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		view := fs.all[0].Changes()
		points = append(points, view.PointAt(wire.KindTask, view.End(wire.KindTask)))
		last.stop()
		<-next.led
		mu.Lock()
		address = next.cfg.Listen
		mu.Unlock()
		for i, live := range fs.resumed {
			if !<-live {
				t.Errorf("turn %d: gateway %d was sent a snapshot", turn, i)
			}
		}
		last = next
	}
	fresh := followAll(t, 1, leads)
	defer func() { fresh.stop() }()
	<-fresh.resumed[0]
	want, err := fresh.all[0].Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range fs.all {
		got, err := f.Barrier(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Version() != want.Version() || got.InstanceUUID() != want.InstanceUUID() {
			t.Errorf("gateway %d is at %s of %s, and a new one at %s of %s",
				i, got.Version(), got.InstanceUUID(), want.Version(), want.InstanceUUID())
		}
		for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
			sameRecords(t, fmt.Sprint("gateway ", i), want, got, kind)
		}
	}
	view := fs.all[0].Changes()
	if view.Generation() != generation {
		t.Error("the history has begun anew")
	}
	for turn, p := range points {
		position, err := view.After(wire.KindTask, p)
		if err != nil {
			t.Errorf("turn %d: %v", turn, err)
			continue
		}
		changes, _ := view.From(wire.KindTask, position)
		if got, want := len(changes), (len(points)-1-turn)*9; got != want {
			t.Errorf("turn %d: %d changes of tasks are behind %v, want %d", turn, got, p, want)
		}
	}
	if _, err := view.After(wire.KindTask, replica.Point{Epoch: 99}); plimsoll.CodeOf(err) != plimsoll.CodeStale ||
		!strings.Contains(err.Error(), "epoch 99") {
		t.Errorf("a point of an epoch that is not known: %v", err)
	}
	last.stop()
}
