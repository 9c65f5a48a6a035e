package placement_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// scores returns what one score stage gives to every server, in the order of the fleet.
func scores(
	t *testing.T, f *placement.Fleet, r *placement.Request, stage string, weights placement.Weights,
	change ...func(*placement.Settings),
) []float64 {
	t.Helper()
	c := chainOf(t, stagesNamed("load-instances", "calculate-unreserved", stage),
		append([]func(*placement.Settings){func(s *placement.Settings) { s.Weights = weights }}, change...)...)
	slots := make([]int32, f.Len())
	for i := range slots {
		slots[i] = int32(i)
	}
	out := make([]float64, f.Len())
	for _, s := range newPlacer(f, 1).Evaluate(prepare(t, c, f, r), slots, 1, 0).Survivors {
		out[s.Slot] = s.Score
	}
	return out
}

func wantScores(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// "score-unreserved-ram" and "-disk": the server with the least that is free gets the whole weight,
// the one with the most nothing, the others their part by rank. A negative weight turns the order
// round, 0 leaves the score out, one server gets all.
func TestScoresByWhatIsFree(t *testing.T) {
	memory := func(gibs ...int64) *placement.Fleet {
		return fleetOf(
			len(gibs),
			func(i int, s *placement.Server) { s.Capacity["memory"], s.Capacity["disk"] = gibs[i]*gib, gibs[i]*gib },
		)
	}
	f := memory(5, 1, 9)
	for stage, weight := range map[string]func(float64) placement.Weights{
		"score-unreserved-memory": func(w float64) placement.Weights { return placement.Weights{UnreservedMemory: w} },
		"score-unreserved-disk":   func(w float64) placement.Weights { return placement.Weights{UnreservedDisk: w} },
	} {
		wantScores(t, stage, scores(t, f, asks(1), stage, weight(2)), 1, 2, 0)
		wantScores(t, stage+" negative", scores(t, f, asks(1), stage, weight(-3)), 1.5, 0, 3)
		wantScores(t, stage+" off", scores(t, f, asks(1), stage, weight(0)), 0, 0, 0)
		wantScores(t, stage+" of one", scores(t, memory(4), asks(1), stage, weight(2)), 2)
		wantScores(t, stage+" of one, negative", scores(t, memory(4), asks(1), stage, weight(-2)), 2)
		// as the original, by place
		wantScores(t, stage+" of equals", scores(t, memory(4, 4, 4), asks(1), stage, weight(2)), 2, 1, 0)
	}
	// The strategy of a request goes before that of the chain, and gives memory the weight 2.
	for _, test := range []struct {
		chain, request plimsoll.Strategy
		want           []float64
	}{
		{0, plimsoll.StrategyPack, []float64{1, 2, 0}},
		{0, plimsoll.StrategySpread, []float64{1, 0, 2}},
		{0, plimsoll.StrategyRandom, []float64{0, 0, 0}},
		{plimsoll.StrategySpread, 0, []float64{1, 0, 2}},
		{plimsoll.StrategySpread, plimsoll.StrategyPack, []float64{1, 2, 0}},
		{plimsoll.StrategyFewestOwner, 0, []float64{0, 0, 0}},
	} {
		r := asks(1, func(r *placement.Request) { r.Preferences.Strategy = test.request })
		chain := func(s *placement.Settings) { s.Strategy = test.chain }
		wantScores(
			t, fmt.Sprint(test.chain, test.request),
			scores(t, f, r, "score-unreserved-memory", placement.Weights{UnreservedMemory: 7}, chain), test.want...,
		)
		if test.chain+test.request != 0 {
			wantScores(
				t, "disk", scores(t, f, r, "score-unreserved-disk", placement.Weights{UnreservedDisk: 7}, chain), 0, 0,
				0,
			)
		}
	}
}

// "score-num-owner-zones": the fewest instances of the owner first.
func TestScoreByOwner(t *testing.T) {
	f := fleetOf(3)
	kind := f.Kind(&placement.Instance{Owner: "alice"})
	f.Bind(0, kind)
	f.Bind(0, kind)
	f.Bind(2, kind)
	f.Bind(1, f.Kind(&placement.Instance{Owner: "bob"}))
	wantScores(
		t, "owner", scores(t, f, asks(1), "score-owner-instances", placement.Weights{OwnerInstances: 4}), 0, 4, 2,
	)
	wantScores(
		t, "owner negative", scores(t, f, asks(1), "score-owner-instances", placement.Weights{OwnerInstances: -4}), 4,
		0, 2,
	)
	wantScores(t, "off", scores(t, f, asks(1), "score-owner-instances", placement.Weights{}), 0, 0, 0)
	fewest := asks(1, func(r *placement.Request) { r.Preferences.Strategy = plimsoll.StrategyFewestOwner })
	wantScores(t, "fewest of owner", scores(t, f, fewest, "score-owner-instances", placement.Weights{}), 0, 2, 1)
}

// "score-current-platform": by time, the newest gets the weight; a platform that is no stamp counts
// as the oldest.
func TestScoreByPlatform(t *testing.T) {
	platforms := func(list ...string) *placement.Fleet {
		return fleetOf(len(list), func(i int, s *placement.Server) { s.Platform = list[i] })
	}
	f := platforms("20260101T000000Z", "20260103T000000Z", "20260102T000000Z", "nonsense", "")
	weight := func(w float64) placement.Weights { return placement.Weights{CurrentPlatform: w} }
	wantScores(t, "platform", scores(t, f, asks(1), "score-current-platform", weight(2)), 0, 2, 1, 0, 0)
	wantScores(t, "oldest first", scores(t, f, asks(1), "score-current-platform", weight(-2)), 2, 0, 1, 2, 2)
	wantScores(t, "of one", scores(t, platforms("20260101T000000Z"), asks(1), "score-current-platform", weight(2)), 0)
	wantScores(
		t, "of equals",
		scores(t, platforms("20260101T000000Z", "20260101T000000Z"), asks(1), "score-current-platform", weight(2)), 2,
		2,
	)
}

// "score-next-reboot": no reboot, or one that has been, is best; then the later the better, week by
// week.
func TestScoreByNextReboot(t *testing.T) {
	const week = 7 * 24 * 60 * 60
	f := fleetOf(5, func(i int, s *placement.Server) {
		s.NextReboot, s.LastBoot = []int64{
			10 * week, 0, 9*week + 1, 5 * week, 3 * week,
		}[i], []int64{1, 0, 0, 6 * week, 0}[i]
	})
	weight := func(w float64) placement.Weights { return placement.Weights{NextReboot: w} }
	wantScores(t, "reboot", scores(t, f, asks(1), "score-next-reboot", weight(4)), 2, 4, 2, 4, 0)
	wantScores(t, "soonest first", scores(t, f, asks(1), "score-next-reboot", weight(-4)), 2, 0, 2, 0, 4)
	wantScores(t, "of one", scores(t, fleetOf(1), asks(1), "score-next-reboot", weight(4)), 0)
}

// score-unreserved-custom: the server with the least left of the requested resources comes first.
func TestScoreByCustom(t *testing.T) {
	f := fleetOf(3, func(i int, s *placement.Server) { s.Capacity["gpu"], s.Capacity["fpga"] = int64(i+1), int64(3-i) })
	r := asks(1, func(r *placement.Request) { r.Resources["gpu"] = 1 })
	weight := func(w float64) placement.Weights { return placement.Weights{UnreservedCustom: w} }
	wantScores(t, "gpu", scores(t, f, r, "score-unreserved-custom", weight(4)), 4, 2, 0)
	wantScores(t, "most first", scores(t, f, r, "score-unreserved-custom", weight(-4)), 0, 2, 4)
	r.Resources["fpga"] = 1
	wantScores(t, "both are the same in sum", scores(t, f, r, "score-unreserved-custom", weight(4)), 4, 4, 4)
	plainOnes := fleetOf(2, func(i int, s *placement.Server) {
		if i == 0 {
			s.Capacity["gpu"] = 2
		}
	})
	wantScores(
		t, "nothing asked for: none to waste", scores(t, plainOnes, asks(1), "score-unreserved-custom", weight(4)), 0,
		4,
	)
}

// score-near: the server with the most preferred instances comes first, less those better far. A
// request without such preferences gets no score.
func TestScoreNear(t *testing.T) {
	f := fleetOf(4)
	friend, foe := f.Kind(&placement.Instance{Job: "friend"}), f.Kind(&placement.Instance{Job: "foe"})
	for slot, n := range []int{0, 1, 2, 2} {
		for range n {
			f.Bind(int32(slot), friend)
		}
	}
	f.Bind(3, foe)
	f.Bind(3, foe)
	r := asks(1, func(r *placement.Request) {
		r.Preferences.Near, r.Preferences.Far = []plimsoll.Selector{{Job: "friend"}}, []plimsoll.Selector{{Job: "foe"}}
	})
	weight := func(w float64) placement.Weights { return placement.Weights{Near: w} }
	wantScores(t, "near", scores(t, f, r, "score-near", weight(8)), 0, 4, 8, 0)
	wantScores(t, "negative", scores(t, f, r, "score-near", weight(-8)), 8, 4, 0, 8)
	wantScores(t, "nothing preferred", scores(t, f, asks(1), "score-near", weight(8)), 0, 0, 0, 0)
}

// score-spread: the fewest of the group first, for each preferred spread.
func TestScoreSpread(t *testing.T) {
	f := fleetOf(4, labelled("rack", "a", "b", "b", ""))
	kind := member(f)
	f.Bind(0, kind)
	f.Bind(0, kind)
	f.Bind(1, kind)
	r := asks(1, func(r *placement.Request) { r.Preferences.Spread = []plimsoll.Spread{{By: "rack"}} })
	weight := func(w float64) placement.Weights { return placement.Weights{Spread: w} }
	wantScores(t, "rack", scores(t, f, r, "score-spread", weight(8)), 4, 8, 8, 0)
	wantScores(t, "off", scores(t, f, r, "score-spread", weight(0)), 0, 0, 0, 0)
	r.Preferences.Spread = append(r.Preferences.Spread, plimsoll.Spread{By: "node"})
	wantScores(t, "rack and node", scores(t, f, r, "score-spread", weight(8)), 4, 12, 16, 8)
}

// "score-uniform-random": every order is as likely as any other, each server gets each rank about
// equally often, and the strategy "random" gives it the weight 2.
func TestScoreRandom(t *testing.T) {
	f := fleetOf(4)
	c := chainOf(
		t, stagesNamed("load-instances", "calculate-unreserved", "score-random"),
		func(s *placement.Settings) { s.Weights = placement.Weights{Random: 3} },
	)
	pl, p := newPlacer(f, 1), prepare(t, c, f, asks(1))
	counts := [4]map[float64]int{{}, {}, {}, {}}
	for seed := range uint64(8000) {
		for _, s := range pl.Evaluate(p, []int32{0, 1, 2, 3}, seed, 0).Survivors {
			counts[s.Slot][s.Score]++
		}
	}
	for slot, by := range counts {
		for _, score := range []float64{0, 1, 2, 3} {
			if n := by[score]; n < 1800 || n > 2200 {
				t.Errorf("server %d scores %v %d times of 8000, want about 2000", slot, score, n)
			}
		}
	}
	random := asks(1, func(r *placement.Request) { r.Preferences.Strategy = plimsoll.StrategyRandom })
	sum := 0.0
	for _, s := range scores(t, f, random, "score-random", placement.Weights{}) {
		sum += s
	}
	if math.Abs(sum-4) > 1e-9 { // 2, 4/3, 2/3, 0
		t.Errorf("the scores add up to %v, want 4", sum)
	}
}
