package informer_test

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
)

// feed is a Source of a fixed snapshot, and then of the messages of a channel.
type feed struct {
	snapshot []plimsoll.Node
	changes  chan informer.Message[*plimsoll.Node]
}

type feedStream struct {
	feed   *feed
	done   <-chan struct{}
	listed bool
}

func (f *feed) Open(ctx context.Context, from informer.Version) (informer.Stream[*plimsoll.Node], error) {
	return &feedStream{feed: f, done: ctx.Done(), listed: !from.IsZero()}, nil
}

func (s *feedStream) Next() (m informer.Message[*plimsoll.Node], err error) {
	if !s.listed {
		s.listed = true
		m.Kind, m.Version = informer.SnapshotEnd, informer.Version{Epoch: 1, Revision: 10}
		for i := range s.feed.snapshot {
			m.Objects = append(m.Objects, &s.feed.snapshot[i])
		}
		return m, nil
	}
	select {
	case m = <-s.feed.changes:
		return m, nil
	case <-s.done:
		return m, context.Canceled
	}
}

func (s *feedStream) Close() error { return nil }

// A handler follows nodes, and a reader waits for a version and asks an index.
func Example() {
	source := &feed{
		snapshot: []plimsoll.Node{{ID: "n1", Revision: 10, Attributes: map[string]string{"zone": "east"}}},
		changes:  make(chan informer.Message[*plimsoll.Node], 1),
	}
	nodes, err := informer.NewSharedInformer(informer.Config[*plimsoll.Node]{
		Source: source,
		Key:    func(n *plimsoll.Node) (string, error) { return n.ID, nil },
		Same:   func(a, b *plimsoll.Node) bool { return a.Revision == b.Revision },
		Indexes: []informer.Index[*plimsoll.Node]{{
			Name: "zone",
			Values: func(n *plimsoll.Node, to []string) ([]string, error) {
				return append(to, n.Attributes["zone"]), nil
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gone := make(chan struct{})
	handler, err := nodes.AddHandler(informer.Handler[*plimsoll.Node]{
		Add:    func(n *plimsoll.Node, initial bool) { fmt.Println("add", n.ID, initial) },
		Update: func(_, n *plimsoll.Node) { fmt.Println("update", n.ID) },
		Delete: func(d informer.Deletion[*plimsoll.Node]) { fmt.Println("delete", d.Key); close(gone) },
	}, informer.HandlerOptions{Name: "printer"})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	<-handler.Synced()

	change := informer.Message[*plimsoll.Node]{
		Kind: informer.Changed, Version: informer.Version{Epoch: 1, Revision: 11},
		Objects: []*plimsoll.Node{{ID: "n2", Revision: 11, Attributes: map[string]string{"zone": "east"}}},
		Deleted: []informer.Deletion[*plimsoll.Node]{{Key: "n1", Tombstone: true}},
	}
	source.changes <- change
	if err := nodes.Indexer().WaitFor(ctx, change.Version); err != nil {
		fmt.Println(err)
	}
	inEast, err := nodes.Indexer().Snapshot().CountByIndex("zone", "east")
	<-gone
	fmt.Println(inEast, err)

	stop()
	fmt.Println(<-ended)
	// Output:
	// add n1 true
	// add n2 false
	// delete n1
	// 1 <nil>
	// <nil>
}
