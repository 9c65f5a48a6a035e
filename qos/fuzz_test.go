package qos

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// fixed is a small node on which rules fire.
func fixed() *Snapshot {
	s := &Snapshot{
		Sequence: 1, At: int64(time.Hour), Cores: 4 * Core, Memory: 8 << 30,
		Values: map[string]int64{CPUTotalUsage: 4 * Core, MemoryTotalUsage: 8 << 30},
	}
	for _, id := range []string{"a", "b", "c"} {
		s.Tasks = append(s.Tasks, Task{
			ID: id, Class: plimsoll.ClassBestEffort, CPU: Core, CPUKnown: true, Memory: 1 << 30, MemoryKnown: true,
			Labels: map[string]string{"app": id},
			Groups: []Group{{Name: id, CPU: Core, Quota: 2 * Core, Shares: 1024}},
		})
	}
	return s
}

func fixedPolicies() []plimsoll.Policy {
	return []plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: "a", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{Step: 20},
				Evict: &plimsoll.EvictAction{Reclaim: true},
			},
		},
		{TaskQOS: &plimsoll.TaskQOS{Name: "t", Match: allOf, Allowed: []string{"a"}}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "n", Rules: []plimsoll.Rule{
			{Name: "cpu", Metric: CPUTotalUsage, Waterline: "1", Action: "a"},
			{Name: "mem", Metric: MemoryTotalUsage, Waterline: "1Gi", Action: "a"},
		}}},
	}
}

// FuzzDecodeLedger: a ledger's file of any content is refused, or can be planned with and written
// again.
func FuzzDecodeLedger(f *testing.F) {
	f.Add(
		[]byte(
			`{"Version":1,"Rules":[{"Rule":"n/cpu","Active":true,"Above":-3}],"Held":[{"Task":"a","Groups":[{"Group":"a","Throttle":true,"Quota":-1}]}]}`,
		),
	)
	f.Add(
		[]byte(
			`{"Version":1,"Failed":[{"Task":"a","Count":-9,"Until":0},null],"Leaving":[{"Task":"b","Deadline":-1}]}`,
		),
	)
	f.Add([]byte(`{"Version":2}`))
	registry, err := NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	policies := Compile(fixedPolicies(), registry, nil, Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLedger(data)
		if err != nil {
			return
		}
		s := fixed()
		res := Plan(s, policies, l, s.At)
		l.Accept(res, s)
		for i := range res.Steps {
			l.Begin(&res.Steps[i], s.At)
			l.Done(&res.Steps[i], errInjected, s.At)
		}
		if _, err := l.Encode(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzCompile: policies that were not validated do no harm either.
func FuzzCompile(f *testing.F) {
	for _, p := range [][]plimsoll.Policy{
		fixedPolicies(),
		{{Action: &plimsoll.Action{Name: "a", Throttle: &plimsoll.ThrottleAction{MinRatio: -7, Step: 1000}}}},
	} {
		data, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	registry, err := NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		var policies []plimsoll.Policy
		if json.Unmarshal(data, &policies) != nil {
			return
		}
		s, l := fixed(), NewLedger()
		p := Compile(policies, registry, map[string]string{"a": "b"}, Options{Excess: 100})
		l.Accept(Plan(s, p, l, s.At), s)
	})
}
