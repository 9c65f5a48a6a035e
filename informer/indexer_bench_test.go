package informer_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// pod is an object with two index values, as in the benchmarks of client-go's store.
type pod struct {
	name, node, owner string
	revision          int
}

const benchPods = 100_000

func benchPod(i, revision int) *pod {
	return &pod{
		name: fmt.Sprintf("namespace-%03d/pod-%08d", i%100, i), node: "node-" + strconv.Itoa(i%1000),
		owner: "owner-" + strconv.Itoa(i%100), revision: revision,
	}
}

func podIndexes() []informer.Index[*pod] {
	return []informer.Index[*pod]{
		{Name: "node", Values: func(p *pod, to []string) ([]string, error) { return append(to, p.node), nil }},
		{Name: "owner", Values: func(p *pod, to []string) ([]string, error) { return append(to, p.owner), nil }},
	}
}

func benchIndexer(b *testing.B) (*informer.Indexer[*pod], []*pod) {
	b.Helper()
	x, err := informer.NewIndexer(informer.IndexerConfig[*pod]{Indexes: podIndexes()})
	if err != nil {
		b.Fatal(err)
	}
	pods := make([]*pod, benchPods)
	changes := make([]informer.Change[*pod], benchPods)
	for i := range pods {
		pods[i] = benchPod(i, 0)
		changes[i] = informer.Change[*pod]{Key: pods[i].name, Object: pods[i]}
	}
	if err := x.Apply(changes, informer.Version{}); err != nil {
		b.Fatal(err)
	}
	return x, pods
}

// BenchmarkIndexerUpdate is one update of 100,000 objects with two indexes, in random order. moved:
// one index value changes.
func BenchmarkIndexerUpdate(b *testing.B) {
	for _, moved := range []bool{false, true} {
		b.Run(fmt.Sprintf("moved=%v", moved), func(b *testing.B) {
			x, pods := benchIndexer(b)
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := rng.IntN(benchPods)
				p := *pods[k]
				p.revision = i
				if moved {
					p.node = "node-" + strconv.Itoa((k+i)%1000)
				}
				change := informer.Change[*pod]{Key: p.name, Object: &p}
				if err := x.Apply([]informer.Change[*pod]{change}, informer.Version{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIndexerReplace builds 100,000 objects with two indexes and swaps them in.
func BenchmarkIndexerReplace(b *testing.B) {
	x, _ := benchIndexer(b)
	next := x.Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Replace(next.All(), informer.Version{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIndexerByIndex reads the 100 objects of one value.
func BenchmarkIndexerByIndex(b *testing.B) {
	x, _ := benchIndexer(b)
	b.ReportAllocs()
	for b.Loop() {
		objects, err := x.Snapshot().ByIndex("node", "node-500")
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for range objects {
			n++
		}
		if n != benchPods/1000 {
			b.Fatalf("%d objects", n)
		}
	}
}
