package gateway

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// A read never shows less than an earlier one of the gateway, whatever its copy does.
func TestAReadThatWouldGoBackIsRefusedAndCounted(t *testing.T) {
	f := clusterWithPolicy()
	g := newGateway(t, Config{}, f)
	counted := func(want string) {
		t.Helper()
		text := ask(g.Handler(), http.MethodGet, "/metrics").Body.String()
		if line := "\nplimsoll_gateway_reads_went_back_total " + want + "\n"; !strings.Contains(text, line) {
			t.Errorf("there is no line %q", line)
		}
	}
	old := f.Latest()
	f.put(taskIn(0, plimsoll.TaskRunning, "n1"))
	newer := f.Latest()
	reads := readsAt(directly(g))
	if _, err := reads["GetJob"](t.Context(), plimsoll.Consistency{}); err != nil {
		t.Fatal(err)
	}
	counted("0")
	f.set(func(f *fake) { f.latest = old })
	levels := []plimsoll.Consistency{{}, {Level: plimsoll.FreshnessEventual}, plimsoll.AtLeast(1, 1)}
	for name, read := range reads {
		for _, c := range levels {
			if got, err := read(t.Context(), c); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
				t.Errorf("%s %s: %v, %v; want a refusal", name, c, got, err)
			}
		}
	}
	counted("30")
	f.set(func(f *fake) { f.latest = newer })
	for name, read := range reads {
		for _, c := range levels {
			if _, err := read(t.Context(), c); err != nil {
				t.Errorf("%s %s: %v", name, c, err)
			}
		}
	}
	f.elect() // a later epoch holds every earlier one, whatever its revision is
	if _, err := reads["GetJob"](t.Context(), plimsoll.Consistency{}); err != nil {
		t.Error(err)
	}
	counted("30")
}

// A read that began before another one ended may show less than that.
func TestAReadBesideANewerOneIsAnswered(t *testing.T) {
	f := clusterWithPolicy()
	g := newGateway(t, Config{}, f)
	began, old := g.shown.least(), f.Latest()
	f.put(taskIn(0, plimsoll.TaskRunning, "n1"))
	if _, err := g.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.show(old, began); err != nil {
		t.Error(err)
	}
	if got := g.shown.least(); got != f.Latest().Version() {
		t.Errorf("reads have shown %s, want %s", got, f.Latest().Version())
	}
}

func TestTheNewestVersionIsKeptWhoeverShowsIt(t *testing.T) {
	var s shown
	var group sync.WaitGroup
	for n := range uint64(8) {
		group.Go(func() {
			for r := range uint64(1_000) {
				s.raise(plimsoll.Version{Epoch: 1 + n%3, Revision: r})
			}
		})
	}
	group.Wait()
	if got, want := s.least(), (plimsoll.Version{Epoch: 3, Revision: 999}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
