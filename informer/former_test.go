package informer_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"weak"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// conveyor is a source and its one stream, which keeps no message.
type conveyor chan informer.Message[*row]

func (c conveyor) Open(context.Context, informer.Version) (informer.Stream[*row], error) {
	return c, nil
}

func (c conveyor) Next() (informer.Message[*row], error) {
	if m, is := <-c; is {
		return m, nil
	}
	return informer.Message[*row]{}, io.EOF
}

func (c conveyor) Close() error { return nil }

// A batch may be the last for hours, and its former objects large.
func TestTheInformerHoldsNoFormerObjects(t *testing.T) {
	source := make(conveyor)
	s := newInforming(t, newLedger(), func(c *informer.Config[*row]) { c.Source = source })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	send := func(kind informer.MessageKind, revision uint64) (held []weak.Pointer[row]) {
		m := informer.Message[*row]{Kind: kind, Version: informer.Version{Revision: revision}}
		for i := range 100 {
			r := &row{name: fmt.Sprintf("n%02d", i), revision: revision}
			m.Objects, held = append(m.Objects, r), append(held, weak.Make(r))
		}
		source <- m
		if err := s.Indexer().WaitFor(ctx, m.Version); err != nil {
			t.Error(err)
		}
		return held
	}
	first := send(informer.SnapshotEnd, 1)
	second := send(informer.Changed, 2)
	source <- informer.Message[*row]{Kind: informer.Bookmark, Version: informer.Version{Revision: 3}}
	for round, held := range [][]weak.Pointer[row]{first, second} {
		for range 10 {
			runtime.GC()
		}
		alive := 0
		for _, p := range held {
			if p.Value() != nil {
				alive++
			}
		}
		if want := round * 100; alive != want {
			t.Errorf("of the objects at revision %d there are %d, want %d", round+1, alive, want)
		}
	}
	cancel()
	close(source)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
