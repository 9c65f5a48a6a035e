package nodeqos

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// seldom is a node whose metric is measured every 20 s.
func (n *node) seldom() {
	n.loop.cfg.Metrics[0].Every = 20 * time.Second
}

// pass lets seconds pass in which nothing is measured but the machine.
func (n *node) pass(seconds int) {
	for range seconds {
		n.now = n.now.Add(time.Second)
		n.loop.sample(n.t.Context())
	}
}

// One reading of a metric that is measured every 20 s throttles by one step, however many samples
// are taken until the next one.
func TestOneReadingThrottlesOnce(t *testing.T) {
	n := newNode(t, subtree(t))
	n.seldom()
	n.batch("a")
	n.loop.SetPolicies(policies(plimsoll.Action{Throttle: &plimsoll.ThrottleAction{Step: 20}}, plimsoll.Rule{}))
	n.set(20)
	n.step()
	same(t, "after a reading", n.quotas(), "a:80000")
	n.pass(14)
	same(t, "after 14 more samples", n.quotas(), "a:80000")
	n.step()
	same(t, "after another reading", n.quotas(), "a:64000")
	n.set(1)
	n.step()
	same(t, "after one below the line", n.quotas(), "a:76800")
	n.pass(14)
	same(t, "after 14 more samples", n.quotas(), "a:76800")
}

// A rule that is triggered by three readings in a row is not by one that is seen three times.
func TestOneReadingIsCountedOnce(t *testing.T) {
	n := newNode(t, nil)
	n.seldom()
	n.batch("a")
	n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{}}, plimsoll.Rule{TriggerAfter: 3}))
	n.set(12)
	n.step()
	n.pass(14)
	n.settle()
	same(t, "after one reading", n.evicted, []string{})
	for range 2 {
		n.step()
	}
	n.settle()
	same(t, "after three", n.evicted, []string{"a"})
}

// A reading is as old as the beginning of its measurement: steps during the measurement may not be
// in it.
func TestAReadingHasTheTimeOfItsBeginning(t *testing.T) {
	n := newNode(t, nil)
	m := &n.loop.cfg.Metrics[0]
	read := reading{value: 5, at: n.now.Add(time.Second), told: true, known: true}
	n.loop.gauges.put(m.Name, &gauge{began: n.now, node: read})
	snap := &qos.Snapshot{
		At: n.loop.at(n.now) + 7*int64(time.Second), Values: map[string]int64{}, Times: map[string]int64{},
	}
	n.seldom()
	n.loop.gauges.fill(snap, n.now.Add(7*time.Second), n.loop.cfg.Metrics)
	same(t, "its value", snap.Values, map[string]int64{m.Name: 5})
	same(t, "its time", snap.Times, map[string]int64{m.Name: n.loop.at(n.now)})
}

// The kernel computes the load every five seconds. A sample in between has no new one.
func TestTheLoadIsNewEveryFiveSeconds(t *testing.T) {
	n := newNode(t, nil)
	var times []int64
	for i := range 12 {
		if i == 8 {
			writeFile(t, filepath.Join(n.cfg.Proc, "loadavg"), "0.60 0.40 0.30 1/2 3\n")
		}
		n.step()
		snap := n.loop.state.snapshot
		times = append(times, (snap.At-snap.Times[qos.Load])/int64(time.Second))
	}
	same(t, "how old it is", times, []int64{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3})
}
