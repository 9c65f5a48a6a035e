package etcd

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// count returns the number of keys of a store that begin with a prefix.
func count(t testing.TB, s *Store, prefix string) int64 {
	t.Helper()
	got, err := s.client.Get(context.Background(), s.key(prefix), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return got.Count
}

// Values larger than a request come back whole, also many at a time and beside small ones. When
// they are replaced, deleted or trimmed, nothing of them is left.
func TestLargeValuesAreKeptInParts(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	large := func(c string, n int) string { return strings.Repeat(c, n) }
	b := batchOf(epoch, 1, "5M", large("a", 5<<20))
	for i := range 200 {
		b.Mutations = append(b.Mutations, wire.Mutation{
			Kind: wire.KindNode, Key: fmt.Sprint(i), Value: []byte(large(string(rune('a'+i%26)), 20_000)),
		})
	}
	b.Mutations = append(b.Mutations, wire.Mutation{Kind: wire.KindNode, Key: "small", Value: []byte("x")})
	b.Events = wire.EventChunk{FirstID: 1, Count: 1, Data: []byte(large("e", 3<<20))}
	mustCommit(t, s, b)
	var m storetest.Model
	m.Apply(b)
	same := func(what string) {
		t.Helper()
		got, err := storetest.Read(s)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(m.Content()) {
			t.Fatalf("%s: the store holds something else", what)
		}
	}
	same("after the batch")
	if n := count(t, s, partPrefix); n < 8 {
		t.Fatalf("there are %d parts", n)
	}
	got := map[string]int{}
	if _, _, err := s.LoadSince(context.Background(), 0, func(_ wire.Kind, key string, value []byte) error {
		got[key] = len(value)
		return nil
	}, func(uint64, wire.EventChunk) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 202 || got["5M"] != 5<<20 || got["7"] != 20_000 || got["small"] != 1 {
		t.Errorf("the changes are %v", got)
	}

	if err := s.Close(); err != nil { // the next leader must know the parts
		t.Fatal(err)
	}
	s = openStore(t, cfg)
	epoch = leadStore(t, s)
	same("after a reopening")
	next := batchOf(epoch, 2, "5M", "small now")
	for i := range 200 {
		next.Mutations = append(next.Mutations, wire.Mutation{Kind: wire.KindNode, Key: fmt.Sprint(i)})
	}
	mustCommit(t, s, next)
	m.Apply(next)
	if err := s.TrimEvents(2); err != nil {
		t.Fatal(err)
	}
	m.Trim(2)
	same("after the values were replaced")
	for revision := uint64(3); revision < 10; revision++ { // each removes some
		mustCommit(t, s, batchOf(epoch, revision, "other", fmt.Sprint(revision)))
	}
	if n := count(t, s, partPrefix); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// Parts whose transaction never came are removed by the next leader, and others are not.
func TestTheNextLeaderRemovesParts(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	mustCommit(t, s, batchOf(epoch, 1, "kept", strings.Repeat("k", 2<<20)))
	term := s.term()
	kept := maps.Clone(term.parts.live)
	r := newRequest(term.meta, []*item{{batch: batchOf(epoch, 2, "lost", strings.Repeat("l", 2<<20))}})
	if err := s.writeParts(context.Background(), term, r, requestBytes); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, partPrefix); n != 4 {
		t.Fatalf("there are %d parts, want 4", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, cfg)
	leadStore(t, s)
	if n := count(t, s, partPrefix); n != 2 {
		t.Errorf("%d parts are left, want 2", n)
	}
	if !maps.Equal(kept, s.term().parts.live) {
		t.Errorf("the parts are %v, want %v", s.term().parts.live, kept)
	}
	if got := values(t, s)["kept"]; len(got) != 2<<20 {
		t.Errorf("the kept value has %d bytes", len(got))
	}
}

// The largest batch that is taken fits, with the longest keys that fit; one with longer keys is
// refused and leaves nothing.
func TestTheLargestBatchFits(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	s := openStore(t, config(cluster))
	epoch := leadStore(t, s)
	full := func(revision uint64, keyBytes int) *wire.Batch {
		b := &wire.Batch{Epoch: epoch, Revision: revision}
		for i := range MaxOps {
			key := fmt.Sprintf("%0*d", keyBytes, i)
			b.Mutations = append(b.Mutations, wire.Mutation{
				Kind: wire.KindTask, Key: key, Value: make([]byte, MaxBytes/MaxOps-keyBytes-2),
			})
		}
		b.Events = wire.EventChunk{FirstID: 1, Count: 1, Data: make([]byte, MaxOps)}
		return b
	}
	mustCommit(t, s, full(1, 180))
	if n := count(t, s, recordPrefix); n != MaxOps {
		t.Errorf("%d records are stored, want %d", n, MaxOps)
	}
	codeIs(t, "a batch of long keys", commitAll(s, full(2, 300)), plimsoll.CodeInvalid)
	mustCommit(t, s, batchOf(epoch, 2, "after", "all"))
	if _, _, err := s.LoadSince(context.Background(), 0, nil, nil); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("changes without a list: got %v, want code %v", err, plimsoll.CodeNotFound)
	}
}

// The lists of changes are bounded, and begin anew where one is missing.
func TestListsOfChangesAreBounded(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	s := openStore(t, config(cluster))
	epoch := leadStore(t, s)
	const perList, keyBytes = 500, 400
	revision := uint64(0)
	for range 2 * MaxChangesBytes / (perList * keyBytes) {
		revision++
		b := &wire.Batch{Epoch: epoch, Revision: revision}
		for i := range perList {
			b.Mutations = append(b.Mutations, wire.Mutation{Kind: wire.KindTask, Key: fmt.Sprintf("%0*d", keyBytes, i)})
		}
		mustCommit(t, s, b)
	}
	got, err := s.client.Get(context.Background(), s.key(changesPrefix), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for _, kv := range got.Kvs {
		bytes += len(kv.Value)
	}
	if bytes > MaxChangesBytes || bytes < MaxChangesBytes/2 {
		t.Errorf("the lists have %d bytes, want nearly %d", bytes, MaxChangesBytes)
	}
	none := func(uint64, wire.EventChunk) error { return nil }
	since := func(since uint64) (n int, err error) {
		count := func(wire.Kind, string, []byte) error { n++; return nil }
		_, _, err = s.LoadSince(context.Background(), since, count, none)
		return n, err
	}
	if n, err := since(revision - uint64(len(got.Kvs))); n != perList || err != nil {
		t.Errorf("since the oldest list: %d changes, %v", n, err)
	}
	if _, err := since(revision - uint64(len(got.Kvs)) - 1); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("since before the oldest list: got %v, want code %v", err, plimsoll.CodeNotFound)
	}
}
