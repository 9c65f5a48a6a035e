package informer_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// known is the consumer's copy, for both queues. Its keys are in order, so that both see one order.
type known struct{ objects map[string]*object }

func (k known) sorted() []string {
	keys := make([]string, 0, len(k.objects))
	for key := range k.objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// theirs and oursOf are the two faces of a copy.
type (
	theirs struct{ known }
	oursOf struct{ known }
)

func (k theirs) ListKeys() []string { return k.sorted() }

func (k theirs) GetByKey(key string) (any, bool, error) {
	o, ok := k.objects[key]
	return o, ok, nil
}

func (k oursOf) Keys() iter.Seq[string] { return slices.Values(k.sorted()) }

func (k oursOf) Get(key string) (*object, bool, error) {
	o, ok := k.objects[key]
	return o, ok, nil
}

// pair is client-go's queue and ours, which are given the same.
type pair struct {
	*testing.T
	rng    *rand.Rand
	copied known
	theirs *cache.DeltaFIFO
	ours   *informer.DeltaFIFO[*object]
	log    []string
	value  int
}

func newPair(t *testing.T, rng *rand.Rand) *pair {
	p := &pair{T: t, rng: rng, copied: known{map[string]*object{}}}
	withCopy, emit := rng.IntN(4) > 0, rng.IntN(2) == 0
	options := cache.DeltaFIFOOptions{
		KeyFunction: func(o any) (string, error) { return o.(*object).key, nil }, EmitDeltaTypeReplaced: emit,
	}
	config := informer.FIFOConfig[*object]{
		Key: func(o *object) (string, error) { return o.key, nil }, EmitReplaced: emit,
	}
	if withCopy {
		options.KnownObjects, config.Known = theirs{p.copied}, oursOf{p.copied}
	}
	p.say("copy=%v replaced=%v", withCopy, emit)
	p.theirs = cache.NewDeltaFIFOWithOptions(options)
	ours, err := informer.NewDeltaFIFO(config)
	p.must(err)
	p.ours = ours
	return p
}

func (p *pair) say(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

func (p *pair) must(errs ...error) {
	p.Helper()
	for _, err := range errs {
		if err != nil {
			p.Fatalf("after %q: %v", p.log, err)
		}
	}
}

func (p *pair) object() *object {
	p.value++
	return &object{key: string(rune('a' + p.rng.IntN(12))), value: p.value}
}

func (p *pair) replace() {
	var list []*object
	var anys []any
	for range p.rng.IntN(12) {
		o := p.object()
		list, anys = append(list, o), append(anys, o)
		p.say("list %s%d", o.key, o.value)
	}
	p.say("replace")
	p.must(p.theirs.Replace(anys, ""), p.ours.Replace(list, informer.Version{}))
}

// step does one operation to both.
func (p *pair) step() {
	o := p.object()
	switch n := p.rng.IntN(20); {
	case n < 4:
		p.say("add %s%d", o.key, o.value)
		p.must(p.theirs.Add(o), p.ours.Add(o))
	case n < 8:
		p.say("update %s%d", o.key, o.value)
		p.must(p.theirs.Update(o), p.ours.Update(o))
	case n < 11:
		p.say("delete %s%d", o.key, o.value)
		p.must(p.theirs.Delete(o), p.ours.Delete(o))
	case n < 13:
		p.say("delete key %s%d", o.key, o.value)
		p.must(p.theirs.Delete(cache.DeletedFinalStateUnknown{Key: o.key, Obj: o}), p.ours.DeleteKey(o.key, o, true))
	case n < 15:
		p.replace()
	case n < 16:
		p.say("resync")
		p.must(p.theirs.Resync())
		p.ours.Resync()
	case p.ours.Stats().Depth > 0:
		p.pop()
	}
	if theirs, ours := p.theirs.HasSynced(), p.ours.HasSynced(); theirs != ours {
		p.Fatalf("after %q: HasSynced is %v with client-go, %v with ours", p.log, theirs, ours)
	}
}

// pop takes a key of both, and holds the changes and the flag of the initial population against
// each other. The consumer then applies them to the copy.
func (p *pair) pop() {
	p.say("pop")
	var theirs, ours string
	_, err := p.theirs.Pop(func(taken any, isInitial bool) error {
		deltas := taken.(cache.Deltas)
		var b strings.Builder
		fmt.Fprint(&b, isInitial)
		for _, d := range deltas {
			o, tombstone := d.Object, false
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o, tombstone = last.Obj, true
			}
			fmt.Fprintf(&b, " %s %s%d %v", d.Type, o.(*object).key, o.(*object).value, tombstone)
		}
		theirs = b.String()
		return nil
	})
	p.must(err)
	p.must(p.ours.Pop(context.Background(), func(deltas informer.Deltas[*object]) error {
		var b strings.Builder
		fmt.Fprint(&b, deltas.Initial)
		for _, d := range deltas.Changes {
			fmt.Fprintf(&b, " %s %s%d %v", d.Type, d.Object.key, d.Object.value, d.Tombstone)
		}
		ours = b.String()
		if n := deltas.Newest(); n.Type == informer.Deleted {
			delete(p.copied.objects, deltas.Key)
		} else {
			p.copied.objects[deltas.Key] = n.Object
		}
		return nil
	}))
	if theirs != ours {
		p.Fatalf("after %q:\nclient-go: %s\nours:      %s", p.log, theirs, ours)
	}
}

// TestPopsAsClientGo gives both queues the same random operations. The keys, their order, all
// changes of each, the flag of the initial population and HasSynced are the same.
//
// Outside of these operations they differ on purpose, as informer/DESIGN.md says: errors and
// overflow, calls while a consumer processes, RequeueError, and the moment in which the last
// initial key counts as processed.
func TestPopsAsClientGo(t *testing.T) {
	const rounds, steps, seed = 2_000, 80, 13
	rng := rand.New(rand.NewPCG(seed, 0))
	pops := 0
	for range rounds {
		p := newPair(t, rng)
		if rng.IntN(2) == 0 {
			p.replace() // an initial population
		}
		for range steps {
			p.step()
		}
		for p.ours.Stats().Depth > 0 {
			p.pop()
			pops++
		}
		p.theirs.Close()
		if _, err := p.theirs.Pop(func(any, bool) error { return nil }); err == nil {
			t.Fatalf("after %q: client-go has more keys", p.log)
		}
	}
	if pops == 0 {
		t.Error("nothing was compared")
	}
}
