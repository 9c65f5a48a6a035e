package nodeqos

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// kill leaves the loop as if its process had been killed: nothing is given back or written any
// more.
func (n *node) kill() {
	n.t.Helper()
	s := &n.loop.state
	for key, g := range s.groups {
		if err := g.close(s.sampler); err != nil {
			n.t.Error(err)
		}
		delete(s.groups, key)
	}
	if err := s.sampler.Close(); err != nil {
		n.t.Error(err)
	}
	s.sampler = nil
}

// After any failure of the agent and of its record, nothing stays throttled for ever. The next
// agent gives everything back, to the exact original.
func TestNothingStaysTakenAfterARestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(n *node) // after the agent was killed, which had throttled a and b
	}{
		{"the record is whole", func(*node) {}},
		{"killed after the record, before the write", func(n *node) {
			for _, id := range []string{"a", "b"} {
				if err := n.control(id).SetQuota(cgroup.Quota{Micros: 100_000}); err != nil {
					n.t.Fatal(err)
				}
			}
		}},
		{"there is no record", func(n *node) {
			if err := os.Remove(n.loop.path(ledgerName)); err != nil {
				n.t.Fatal(err)
			}
		}},
		{
			"the record is torn",
			func(n *node) { writeFile(n.t, n.loop.path(ledgerName), `{"Boot":"boot-1","Ledger":{"Ver`) },
		},
		{
			"the record is of another version",
			func(n *node) { writeFile(n.t, n.loop.path(ledgerName), `{"Boot":"boot-1","Ledger":{"Version":77}}`) },
		},
		{
			"the record is of another boot",
			func(n *node) { writeFile(n.t, filepath.Join(n.cfg.Proc, "sys/kernel/random/boot_id"), "boot-2\n") },
		},
		{"frozen and idle without a record", func(n *node) {
			c := n.control("b")
			err := errors.Join(
				os.Remove(n.loop.path(ledgerName)), c.SetScheduling(cgroup.Scheduling{Idle: true}),
				c.Freeze(n.t.Context()),
			)
			if err != nil {
				n.t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, subtree(t))
			n.batch("a", "b", "c")
			weight, err := n.control("b").Scheduling()
			if err != nil {
				t.Fatal(err)
			}
			p := policies(
				plimsoll.Action{Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20}, CoolDown: 3 * time.Second},
				plimsoll.Rule{},
			)
			n.loop.SetPolicies(p)
			n.set(11.5)
			n.steps(2)
			if strings.Contains(n.quotas(), "a:100000 b:100000") {
				t.Fatal("nothing was taken")
			}
			n.kill()
			c.before(n)
			n.loop = n.start()
			n.loop.SetPolicies(p)
			n.set(1)
			n.steps(2)
			if frozen, err := n.control("b").Frozen(); err != nil || frozen {
				t.Errorf("frozen %v, %v", frozen, err)
			}
			n.steps(60)
			same(t, "given back", n.quotas(), "a:100000 b:100000 c:100000")
			if got, err := n.control("b").Scheduling(); err != nil || got != weight {
				t.Errorf("the weight is %+v, %v; want %+v", got, err, weight)
			}
			if held := n.loop.state.ledger.Held(); len(held) > 0 {
				t.Errorf("still held: %v", held)
			}
		})
	}
}

// The record is on disk before anything is taken.
func TestTheRecordComesFirst(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.steps(2)
	n.set(10.5)
	if err := os.RemoveAll(n.loop.cfg.directory()); err != nil {
		t.Fatal(err)
	}
	writeFile(t, n.loop.cfg.directory(), "a file in its place")
	n.step()
	same(t, "a disk that takes nothing is no reason to do nothing", n.quotas(), "a:80000")
	if err := os.Remove(n.loop.cfg.directory()); err != nil {
		t.Fatal(err)
	}
	if err := n.loop.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	n.set(10)
	n.step()
	data, err := os.ReadFile(n.loop.path(ledgerName))
	var file ledgerFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil || file.Boot != "boot-1" {
		t.Fatalf("the record is %s, %v", data, err)
	}
	l, err := qos.DecodeLedger(file.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	if quota, ok := l.Original(n.tasks[0].Key(), "a-1"); !ok || quota != qos.Core {
		t.Errorf("the record says %d, %v", quota, ok)
	}
}

// Quotas are converted to the planner's unit and back without losing a microsecond, in every
// period.
func TestQuotasAreConvertedExactly(t *testing.T) {
	for _, period := range []int64{1000, 3333, 20_000, 100_000, 999_983, 1_000_000} {
		for micros := int64(1000); micros < 64_000_000; micros = micros*5/4 + 1 {
			q := cgroup.Quota{Micros: micros, PeriodMicros: period}
			if got := microsOf(nanocoresOf(q), period); got != micros {
				t.Fatalf("%v becomes %d", q, got)
			}
		}
	}
	unlimited := cgroup.Quota{Micros: -1, PeriodMicros: 100_000}
	if nanocoresOf(unlimited) != qos.Unlimited || microsOf(qos.Unlimited, 100_000) != -1 {
		t.Error("no quota is not no quota")
	}
}

// A v2 weight is coarser than the shares that it was made of. The weight read back is not taken for
// less than the specification says.
func TestTheWeightOfTheSpecificationIsRecognised(t *testing.T) {
	cores := func(milli int64) plimsoll.Resources { return plimsoll.Resources{plimsoll.CPU: milli} }
	if got := specShares(plimsoll.ClassBestEffort, nil, true, 2); got != cgroup.MinShares {
		t.Errorf("best effort without a processor has %d shares, want the least", got)
	}
	for _, c := range []struct {
		resources   plimsoll.Resources
		v2          bool
		found, want int64
	}{
		{cores(1000), false, 1024, 1024},
		{cores(1000), false, 1000, 1024},
		{cores(1000), true, 999, 999},
		{cores(1000), true, 2, 1024},
		{nil, false, 1024, 1024},
		{nil, true, 2598, 2598},
		{nil, true, 0, 2598},
		{plimsoll.Resources{plimsoll.ExtCPU: 2000}, false, 2, 2},
		{plimsoll.Resources{plimsoll.CPU: 1000, plimsoll.ExtCPU: 2000}, false, 2, 1024},
		{cores(1 << 50), false, 262_144, 262_144},
	} {
		if got := specShares(plimsoll.ClassBurstable, c.resources, c.v2, c.found); got != c.want {
			t.Errorf("%v, v2 %v, found %d: %d shares, want %d", c.resources, c.v2, c.found, got, c.want)
		}
	}
}
