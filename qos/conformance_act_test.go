package qos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// actInput is the input of cases of evicting, throttling, restoring and sorting. Their unit of
// processors is the core for tasks and the millicore for the node.
type actInput struct {
	NodeUsage         map[string]float64
	Watermarks        map[string][]string
	RestoreWatermarks map[string][]string
	ExecuteExcess     float64
	MinCPURatio       int32
	StepCPURatio      *int32
	Sorter            string
	Pods              []actPod
}

type actPod struct {
	Name, Namespace, QOSClass      string
	CPUUsageCores                  float64
	MemUsageBytes                  float64
	Priority                       int32
	StartUnix                      int64
	Labels                         map[string]string
	MissingFromLister, Critical    bool
	EvictError, RuntimeUpdateError fault
	Containers                     []actContainer
}

type actContainer struct {
	Name                                       string
	UsageCores                                 float64
	QuotaUs, PeriodUs                          int64
	LimitMilli, RequestMilli, ElasticCPUMilli  int64
	MemUsageBytes, LimitBytes, ElasticMemBytes float64
}

// fault is an injected error: true, or its text.
type fault bool

func (f *fault) UnmarshalJSON(data []byte) error {
	*f = string(data) != "false" && string(data) != `""` && string(data) != "null"
	return nil
}

// cores converts cores to nanocores. Finer parts are cut off, as in the measurements of a node.
func cores(v float64) int64 { return int64(v*float64(Core) + 1e-3) }

const milliCore = Core / 1000

var errInjected = errors.New("injected")

// allOf matches every task: nobody is called so.
var allOf = []plimsoll.Requirement{{Scope: plimsoll.ScopeOwner, Not: true, Values: []string{"nobody at all"}}}

// waterline converts a line: that of cpu_total_usage is in millicores there and in cores here.
func waterline(t *testing.T, metric, text string) string {
	t.Helper()
	if metric != CPUTotalUsage {
		return text
	}
	line, err := plimsoll.ParseLine(text, milliCore)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%dn", line)
}

// measured converts a value of the node to the metric's finest unit.
func measured(registry *Registry, metric string, v float64) int64 {
	switch m := registry.Find(metric); {
	case metric == CPUTotalUsage:
		return int64(math.Round(v * float64(milliCore)))
	case m != nil:
		return int64(math.Round(v * float64(m.LineScale())))
	}
	return int64(math.Round(v * plimsoll.LineScale))
}

// setting is a case made ready.
type setting struct {
	in       *actInput
	registry *Registry
	policies *Policies
	snapshot *Snapshot
	ledger   *Ledger
	now      int64
	down     map[string]bool // keys of rules of watermarks, as against those of restoreWatermarks
	last     *Result

	evicted, failed []string
	updates         []quotaUpdate
	errors          bool
}

type quotaUpdate struct {
	Container string
	QuotaUs   int64
}

func newSetting(t *testing.T, in *actInput, kind string) *setting {
	t.Helper()
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	x := &setting{in: in, registry: registry, ledger: NewLedger(), now: int64(time.Hour), down: map[string]bool{}}
	x.snapshot = &Snapshot{
		Sequence: 1, At: x.now, Cores: cores(in.NodeUsage["cpu_core_numbers"]),
		Memory: int64(in.NodeUsage["memory_total"]), Values: map[string]int64{},
	}
	for _, name := range slices.Sorted(maps.Keys(in.NodeUsage)) {
		x.snapshot.Values[name] = measured(registry, name, in.NodeUsage[name])
	}
	for i := range in.Pods {
		x.snapshot.Tasks = append(x.snapshot.Tasks, in.Pods[i].task())
	}
	action := plimsoll.Action{Name: "act", CoolDown: time.Minute, DisableScheduling: true}
	if kind == "evict" {
		action.Evict = &plimsoll.EvictAction{}
	} else {
		action.Throttle = &plimsoll.ThrottleAction{MinRatio: in.MinCPURatio}
		if in.StepCPURatio != nil {
			action.Throttle.Step = *in.StepCPURatio
		}
	}
	policies := []plimsoll.Policy{
		{Action: &action},
		{TaskQOS: &plimsoll.TaskQOS{Name: "all", Match: allOf, Allowed: []string{"act"}}},
		{TaskQOS: &plimsoll.TaskQOS{Name: "critical", Labels: map[string]string{"critical": "yes"}, Critical: true}},
	}
	for i, marks := range []map[string][]string{in.Watermarks, in.RestoreWatermarks} {
		if rules := x.rules(t, marks, i == 0); len(rules) > 0 {
			policies = append(
				policies, plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: []string{"down", "up"}[i], Rules: rules}},
			)
		}
	}
	x.policies = Compile(policies, registry, nil, Options{
		Excess: int64(math.Round(in.ExecuteExcess * 1000)), WholeSteps: true,
	})
	if len(in.RestoreWatermarks) > 0 {
		x.hold()
	}
	return x
}

// rules makes a rule of each watermark. One whose metric was not collected has been crossed, and
// its metric been missing, for longer than is borne.
func (x *setting) rules(t *testing.T, marks map[string][]string, down bool) (rules []plimsoll.Rule) {
	for _, metric := range slices.Sorted(maps.Keys(marks)) {
		for i, text := range marks[metric] {
			name := strings.ReplaceAll(metric, "_", "-") + "-" + fmt.Sprint(i)
			rules = append(
				rules, plimsoll.Rule{Name: name, Metric: metric, Waterline: waterline(t, metric, text), Action: "act"},
			)
			key := map[bool]string{true: "down/", false: "up/"}[down] + name
			x.down[key] = down
			if _, known := x.in.NodeUsage[metric]; !known {
				x.ledger.rules[key] = &ruleState{Rule: key, Active: down, Since: 1, Missing: x.now - int64(time.Minute)}
			}
		}
	}
	return rules
}

// hold records that the quota of every group was lowered from its specification.
func (x *setting) hold() {
	for i := range x.snapshot.Tasks {
		t := &x.snapshot.Tasks[i]
		h := &hold{Task: t.ID, Rule: "up"}
		for _, g := range t.Groups {
			if g.Name == "" || !g.limited() {
				continue
			}
			o := original{Group: g.Name, Throttle: true, Quota: Unlimited}
			if g.Limit > 0 {
				o.Quota = g.Limit
			}
			if g.Ext > 0 {
				o.Quota = g.Ext
			}
			h.Groups = append(h.Groups, o)
		}
		if len(h.Groups) > 0 {
			x.ledger.held[t.Key()] = h
		}
	}
}

func (p *actPod) task() Task {
	t := Task{
		ID: p.Name, Class: className(p.QOSClass), Priority: p.Priority, Owner: p.Namespace,
		Started: p.StartUnix * int64(time.Second),
		CPU:     cores(p.CPUUsageCores), CPUKnown: true, Memory: int64(p.MemUsageBytes), MemoryKnown: true,
		Gone: p.MissingFromLister, Labels: maps.Clone(p.Labels),
	}
	if p.Critical {
		t.Labels = map[string]string{"critical": "yes"}
	}
	for _, c := range p.Containers {
		g := Group{
			Name: c.Name, CPU: cores(c.UsageCores), Quota: Unlimited, Period: c.PeriodUs * 1000,
			Limit: c.LimitMilli * milliCore, Request: c.RequestMilli * milliCore, Ext: c.ElasticCPUMilli * milliCore,
		}
		if c.QuotaUs > 0 {
			g.Quota = mulDiv(c.QuotaUs, Core, c.PeriodUs)
		}
		t.ExtCPU += g.Ext
		t.ExtMemory += int64(c.ElasticMemBytes)
		t.Groups = append(t.Groups, g)
	}
	return t
}

func className(qos string) plimsoll.Class {
	class, _ := plimsoll.ParseClass(
		map[string]string{"BestEffort": "best-effort", "Burstable": "burstable", "Guaranteed": "guaranteed"}[qos],
	)
	return class
}

func (x *setting) pod(name string) *actPod {
	return &x.in.Pods[slices.IndexFunc(x.in.Pods, func(p actPod) bool { return p.Name == name })]
}

// run plans and executes; as long as something failed, it goes on with the next sample, as an agent
// does.
func (x *setting) run(t *testing.T) {
	for again := true; again; {
		if x.snapshot.Sequence > uint64(len(x.in.Pods)+1) {
			t.Fatal("there is no end of failing")
		}
		x.last = Plan(x.snapshot, x.policies, x.ledger, x.now)
		if x.last.Waits != "" {
			t.Fatal(x.last.Waits)
		}
		for _, s := range x.last.Skipped {
			x.errors = x.errors || s.Why == WhyGone
		}
		x.ledger.Accept(x.last, x.snapshot)
		again = false
		for i := range x.last.Steps {
			again = !x.execute(&x.last.Steps[i]) || again
		}
		if again {
			x.now += int64(time.Second)
			x.snapshot.Sequence, x.snapshot.At = x.snapshot.Sequence+1, x.now
		}
	}
}

// execute does a step, or fails if the case says so.
func (x *setting) execute(s *Step) bool {
	p := x.pod(s.Task)
	x.ledger.Begin(s, x.now)
	if s.Verb == Evict && bool(p.EvictError) || s.Verb != Evict && bool(p.RuntimeUpdateError) {
		x.ledger.Done(s, errInjected, x.now)
		x.failed, x.errors = append(x.failed, p.Name), true
		return false
	}
	x.ledger.Done(s, nil, x.now)
	if s.Verb == Evict {
		x.evicted = append(x.evicted, p.Name)
		return true
	}
	i := slices.IndexFunc(p.Containers, func(c actContainer) bool { return c.Name == s.Group })
	u := quotaUpdate{Container: p.Name + "/" + s.Group, QuotaUs: -1}
	if s.Group == p.Name {
		u.Container = p.Name
	}
	if s.After > 0 {
		u.QuotaUs = int64(math.Round(float64(s.After) * float64(p.Containers[i].PeriodUs) / float64(Core)))
	}
	x.updates = append(x.updates, u)
	x.apply(s)
	return true
}

// apply makes a quota felt in the next sample.
func (x *setting) apply(s *Step) {
	for i := range x.snapshot.Tasks {
		t := &x.snapshot.Tasks[i]
		for j := range t.Groups {
			if g := &t.Groups[j]; t.ID == s.Task && g.Name == s.Group {
				less := max(g.CPU-s.After, 0)
				g.Quota, g.CPU, t.CPU = s.After, g.CPU-less, t.CPU-less
				x.snapshot.Values[CPUTotalUsage] -= less
			}
		}
	}
}

// gap returns the rest of a metric's gap to its smallest line, positive above it. For lines to
// restore by it is positive below the line.
func (x *setting) gap(metric string) (left float64, ok bool) {
	for i := range x.last.Rules {
		rep := &x.last.Rules[i]
		if rep.Metric != metric || !rep.Known {
			continue
		}
		v := float64(rep.LeftGap)
		if rep.Dimension == DimensionCPU || rep.Dimension == DimensionExtCPU {
			v /= float64(milliCore)
		}
		down := x.down[rep.Rule]
		if down && !rep.Fires {
			v = -v // below the line: what there is room for
		}
		if !ok || down && v > left || !down && v < left {
			left, ok = v, true
		}
	}
	return left, ok
}

func (c *conformanceCase) checkAct(t *testing.T, kind string) (outcomes [][]string) {
	x := newSetting(t, c.Input, kind)
	x.run(t)
	for _, want := range c.Accept {
		var faults []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			faults = append(faults, x.differ(t, key, want[key])...)
		}
		outcomes = append(outcomes, faults)
	}
	return outcomes
}

// differ compares one key of an outcome with our outcome.
func (x *setting) differ(t *testing.T, key string, raw json.RawMessage) []string {
	switch key {
	case "evictedInOrder":
		return unlike(key, x.evicted, into[[]string](t, raw))
	case "evictedSet":
		return unlike(key, sorted(x.evicted), sorted(into[[]string](t, raw)))
	case "evictedCount":
		return unlike(key, len(x.evicted), into[int](t, raw))
	case "quotaUpdates":
		return unlike(key, x.updates, into[[]quotaUpdate](t, raw))
	case "quotaUpdatesSet":
		return unlike(key, sortedUpdates(x.updates), sortedUpdates(into[[]quotaUpdate](t, raw)))
	case "errors":
		return unlike(key, x.errors, into[bool](t, raw))
	case "failed":
		if raw[0] != '[' {
			return unlike(key, len(x.failed) > 0, into[bool](t, raw))
		}
		return unlike(key, sorted(x.failed), sorted(into[[]string](t, raw)))
	case "gapsAfter":
		var faults []string
		want := into[map[string]float64](t, raw)
		for _, metric := range slices.Sorted(maps.Keys(want)) {
			if got, ok := x.gap(metric); !ok || math.Abs(got-want[metric]) > 1e-6 {
				faults = append(faults, fmt.Sprintf("gapsAfter %s: got %v, want %v", metric, got, want[metric]))
			}
		}
		return faults
	}
	t.Fatalf("nobody knows how to compare %q", key)
	return nil
}

func unlike[T any](what string, got, want T) []string {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return []string{fmt.Sprintf("%s: got %s, want %s", what, g, w)}
	}
	return nil
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func sortedUpdates(u []quotaUpdate) []quotaUpdate {
	return slices.SortedFunc(
		slices.Values(u), func(a, b quotaUpdate) int { return strings.Compare(a.Container, b.Container) },
	)
}

// sorters are those of the package, by their names in cases.
func sorters() map[string]Sorter {
	return map[string]Sorter{
		"cpu": CPUUsageSorter(), "mem": MemUsageSorter(), "memory": MemUsageSorter(), "general": GeneralSorter(),
		"default": GeneralSorter(), "ext-cpu": ExtCPUUsageSorter(),
	}
}

func (c *conformanceCase) checkSort(t *testing.T) (outcomes [][]string) {
	sorter, known := sorters()[c.Input.Sorter]
	if !known {
		t.Fatalf("there is no sorter %q", c.Input.Sorter)
	}
	var tasks []Task
	for i := range c.Input.Pods {
		tasks = append(tasks, c.Input.Pods[i].task())
	}
	var got []string
	for _, i := range sorter.Sort(tasks) {
		got = append(got, tasks[i].ID)
	}
	for _, want := range c.Accept {
		alike := map[string]string{}
		if raw, has := want["ties"]; has {
			for _, tie := range into[[][]string](t, raw) {
				for _, name := range tie {
					alike[name] = tie[0]
				}
			}
		}
		fold := func(names []string) (out []string) {
			for _, n := range names {
				if first, tied := alike[n]; tied {
					n = first
				}
				out = append(out, n)
			}
			return out
		}
		outcomes = append(outcomes, unlike("order", fold(got), fold(into[[]string](t, want["order"]))))
	}
	return outcomes
}
