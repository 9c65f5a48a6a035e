package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
)

// gathered returns the values of all series of some collectors: of a histogram the number of its
// observations. A series with a label is named "name{value}".
func gathered(t testing.TB, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += "{" + label.GetValue() + "}"
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestMetricsOfAFollowerTellItsSyncsItsSnapshotsAndTheEndsOfItsLink(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{RetainBytes: 400})
	lives := make(chan bool, 10)
	leader.publish(put("a", strings.Repeat("x", 1000)))
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address, Events: FollowerEvents{
		Live: func(_, _ uint64, resumed bool) { lives <- resumed },
	}})
	ctx := testContext(t)
	await(ctx, t, lives)
	mustBarrier(ctx, t, f)
	mustBarrier(ctx, t, f)
	endStreams(leader.source)
	if resumed := await(ctx, t, lives); !resumed {
		t.Fatal("the copy was not resumed")
	}
	got := gathered(t, f.Collectors()...)
	for name, want := range map[string]float64{
		"plimsoll_gateway_sync_seconds": 2, "plimsoll_gateway_snapshot_load_seconds": 1,
		"plimsoll_gateway_links_resumed_total": 1, "plimsoll_gateway_snapshot_loaded_bytes_total": 1001,
		"plimsoll_gateway_link_ends_total{broken}": 1, "plimsoll_gateway_link_ends_total{lost}": 0,
		"plimsoll_gateway_snapshot_waiting": 0, "plimsoll_gateway_snapshot_loading": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestEachEndOfALinkHasItsReason(t *testing.T) {
	for want, err := range map[string]error{
		linkSilent: errSilent, linkLost: errLost, linkReplaced: errReplaced, linkUnready: &unreadyError{[]string{"r"}},
		linkBehind: plimsoll.Errorf(plimsoll.CodeExhausted, "x"), linkRefused: circle([]string{"a", "b", "a"}),
		linkBroken: errStreamEnded,
	} {
		if got := linkEnd(err); got != want || !slices.Contains(linkEnds(), want) {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

func TestMetricsOfASourceTellWhyEachStreamEnded(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	ctx := testContext(t)
	ends := func() map[string]float64 { return gathered(t, NewCollector("", leader.source.Stats)) }
	expect := func(reason string) {
		t.Helper()
		await(ctx, t, leader.lost)
		for i, name := range streamEndNames[1:] {
			want := 0.0
			if name == reason {
				want = 1
			}
			if got := ends()["streams_ended_total{"+name+"}"]; got != want {
				t.Errorf("end %d: %v streams ended for %q, want %v", i+1, got, name, want)
			}
		}
	}
	f, stop := startFollower(t, FollowerConfig{Leader: leader.address, MinBackoff: time.Hour})
	mustReady(ctx, t, f)
	leader.source.Close(nil)
	expect("source")
	stop()
}

func TestEachEndOfASessionHasItsReason(t *testing.T) {
	for want, end := range map[streamEnd]func(*session){
		endBehind: func(s *session) {
			s.log.limit = 1
			s.cursor = s.log.first
			s.log.add(100, make([]byte, 10))
			s.log.add(101, make([]byte, 10))
			for _, ok := s.next(); ok; _, ok = s.next() {
			}
		},
		endReplies: func(s *session) {
			s.maxReplies = 0
			s.reply(nil)
		},
		endProof: func(s *session) { s.proofDone(errLost) },
	} {
		b := newBench(1, 0, 1<<20)
		b.publish(put("a", "1"))
		s := b.session(t, 1, 1)
		end(s)
		s.endFor(endSource, errStreamEnded) // the first reason stays
		if s.reason != want || s.phase != phaseEnded {
			t.Errorf("the reason is %q, want %q", streamEndNames[s.reason], streamEndNames[want])
		}
	}
}
