package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// orderCases test overlapping commits, and closing.
var orderCases = []testCase{
	{"batches may be committed while earlier ones are under way, and count in order", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		const n = 50
		var under []store.Pending
		for r := uint64(1); r <= n; r++ {
			p, err := s.Commit(
				batch(
					epoch, r, put(wire.KindNode, "last", fmt.Sprint(r)), put(wire.KindTask, fmt.Sprintf("%03d", r), ""),
				),
			)
			if err != nil {
				t.Fatalf("commit revision %d: %v", r, err)
			}
			under = append(under, p)
		}
		want := Content{Revision: n, Time: timeOf(n)}
		for i, p := range under {
			if err := p.Wait(); err != nil {
				t.Fatalf("wait for revision %d: %v", i+1, err)
			}
			want.Records = append(want.Records, Record{wire.KindTask, fmt.Sprintf("%03d", i+1), ""})
		}
		want.Records = append(want.Records, Record{wire.KindNode, "last", fmt.Sprint(n)})
		holds(t, reopen(t, h, s), want)
	}},
	{"another goroutine may wait", waitElsewhere},
	{"a load beside commits tells the state at one revision", loadBesideCommits},
	{"the batch belongs to the caller again after the wait", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		b := withEvents(batch(epoch, 1, put(wire.KindNode, "a", "before")), 0, 1)
		want := Content{
			Records: []Record{{wire.KindNode, "a", "before"}}, Chunks: []Chunk{chunkOf(b)}, Revision: 1,
			Time: timeOf(1),
		}
		commit(t, s, b)
		copy(b.Mutations[0].Value, "after!")
		clear(b.Events.Data)
		b.Mutations[0].Key = "z"
		holds(t, s, want)
	}},
	{"a revision that is not after the last is refused", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 7, put(wire.KindNode, "a", "1")))
		refused(t, s, batch(epoch, 7, put(wire.KindNode, "a", "2")), plimsoll.CodeInvalid)
		refused(t, s, batch(epoch, 6, put(wire.KindNode, "a", "2")), plimsoll.CodeInvalid)
		s = reopen(t, h, s)
		refused(t, s, batch(lead(t, s), 7, put(wire.KindNode, "a", "2")), plimsoll.CodeInvalid)
		holds(t, s, Content{Records: []Record{{wire.KindNode, "a", "1"}}, Revision: 7, Time: timeOf(7)})
	}},
	{"a closed store takes nothing, and closes again without complaint", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1))
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
		}
		if _, err := s.Commit(batch(epoch, 2)); err == nil {
			t.Error("commit: no error")
		}
		if _, err := s.Lead(context.Background(), nil); err == nil {
			t.Error("lead: no error")
		}
		if err := s.Confirm(context.Background()); err == nil {
			t.Error("confirm: no error")
		}
		if err := s.TrimEvents(1); err == nil {
			t.Error("trim: no error")
		}
		if _, err := Read(s); err == nil {
			t.Error("load: no error")
		}
	}},
}

func loadBesideCommits(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	const n = 200
	var committing sync.WaitGroup
	over := make(chan struct{})
	committing.Go(func() {
		defer close(over)
		for r := uint64(1); r <= n; r++ {
			now := fmt.Sprint(r)
			p, err := s.Commit(withEvents(
				batch(
					epoch, r, put(wire.KindNode, "a", now), put(wire.KindTask, "b", now), put(wire.KindTask, now, ""),
				), r, 1,
			))
			if err == nil {
				err = p.Wait()
			}
			if err != nil {
				t.Errorf("commit revision %d: %v", r, err)
				return
			}
		}
	})
	defer committing.Wait()
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		got, err := Read(s)
		if err != nil {
			t.Errorf("load: %v", err)
			return
		}
		if got.Revision == 0 {
			continue // nothing is committed yet
		}
		now := fmt.Sprint(got.Revision)
		for _, r := range got.Records {
			if r.Value != "" && r.Value != now {
				t.Errorf("a load of revision %s tells %+v", now, r)
			}
		}
		if uint64(len(got.Chunks)) != got.Revision || uint64(len(got.Records)) != got.Revision+2 {
			t.Errorf("a load of revision %s tells %d chunks and %d records", now, len(got.Chunks), len(got.Records))
		}
	}
}

func waitElsewhere(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	const n = 100
	under := make(chan store.Pending, 4)
	var waiting sync.WaitGroup
	var failed error
	waiting.Go(func() {
		for p := range under {
			failed = errors.Join(failed, p.Wait())
		}
	})
	var m Model
	for r := uint64(1); r <= n; r++ {
		b := withEvents(batch(epoch, r, put(wire.KindNode, "a", fmt.Sprint(r))), r, 1)
		p, err := s.Commit(b)
		if err != nil {
			t.Errorf("commit revision %d: %v", r, err)
			break
		}
		m.Apply(b)
		under <- p
	}
	close(under)
	waiting.Wait()
	if failed != nil {
		t.Fatalf("wait: %v", failed)
	}
	holds(t, s, m.Content())
}
