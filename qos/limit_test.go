package qos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// requests is a metric of tasks that is throttled by limits of its own. Its finest unit is a
// request.
func requests() Metric {
	return Metric{
		Name: "requests", Unit: "requests/s", Scale: 1, Throttleable: true, ThrottleQuantified: true, Limit: &Limit{},
		Evictable: true, EvictQuantified: true,
	}
}

// clients is a node whose tasks each want to make so many requests, and are held to limits.
type clients struct {
	*stage
	wants  map[string]int64
	limits map[string]int64
}

func newClients(t *testing.T, m Metric, evict bool, tasks ...Task) *clients {
	t.Helper()
	action := &plimsoll.Action{Name: "slow", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{Step: 20}}
	if evict {
		action.Evict = &plimsoll.EvictAction{}
	}
	match := []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}}
	policies := []plimsoll.Policy{
		{Action: action},
		{TaskQOS: &plimsoll.TaskQOS{Name: "batch", Match: match, Allowed: []string{"slow"}}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "node", Rules: []plimsoll.Rule{
			{Name: "requests", Metric: "requests", Waterline: "1000", Action: "slow"},
		}}},
	}
	x := newStageWith(t, policies, []Metric{m}, tasks...)
	return &clients{stage: x, wants: map[string]int64{}, limits: map[string]int64{}}
}

func client(id string, priority int32) Task {
	return Task{ID: id, Class: plimsoll.ClassBestEffort, Priority: priority, Started: 1}
}

// second takes a sample and does its steps, and returns them.
func (c *clients) second() (steps []string) {
	all := int64(0)
	for i := range c.s.Tasks {
		t := &c.s.Tasks[i]
		value := c.wants[t.ID]
		if limit, ok := c.limits[t.ID]; ok && limit >= 0 {
			value = min(value, limit)
		}
		t.Values = map[string]int64{"requests": value}
		all += value
	}
	res := c.sample("requests", all)
	for i := range res.Steps {
		s := &res.Steps[i]
		c.l.Begin(s, c.at)
		if s.Verb == Evict {
			c.s.Tasks = slices.DeleteFunc(c.s.Tasks, func(t Task) bool { return t.ID == s.Task })
			steps = append(steps, "evict "+s.Task+" by "+s.By())
		} else {
			c.limits[s.Task] = s.After
			before, after := s.Change()
			steps = append(steps, fmt.Sprintf("%s %s: %s → %s", s.Verb, s.Task, before, after))
		}
		c.l.Done(s, nil, c.at)
	}
	return steps
}

// Design: "By improving some column attributes and implementation of user-defined indicators, it
// can also have the same precise operation ability". A metric with limits of its own is throttled
// in order until its gap is gone.
func TestAMetricThrottlesByALimitOfItsOwn(t *testing.T) {
	c := newClients(t, requests(), false, client("a", 0), client("b", 1), client("c", 2))
	c.wants = map[string]int64{"a": 500, "b": 500, "c": 150}
	equal(t, strings.Join(c.second(), "; "),
		"throttle a: limit none → limit 400 requests/s; throttle b: limit none → limit 400 requests/s")
	// up to its line:
	equal(t, strings.Join(c.second(), "; "), "restore b: limit 400 requests/s → limit 450 requests/s")
	if steps := c.second(); len(steps) != 0 {
		t.Errorf("at its line: %v", steps)
	}
	equal(t, fmt.Sprint(c.l.Held()), "[{a 0} {b 0}]")
}

// Limits are raised again, those of the more important task first, up to the original limit but not
// beyond the line.
func TestALimitIsGivenBack(t *testing.T) {
	c := newClients(t, requests(), false, client("a", 0), client("b", 1))
	c.wants = map[string]int64{"a": 600, "b": 600}
	for range 3 {
		c.second()
	}
	c.wants["a"] = 100
	var all []string
	for range 60 {
		all = append(all, c.second()...)
		if used := min(c.wants["b"], max(c.limits["b"], 0)) + c.wants["a"]; used > 1000 {
			t.Fatalf("given back beyond the line: %d", used)
		}
	}
	equal(t, all[0][:len("restore b")], "restore b")
	equal(t, fmt.Sprint(c.l.Held()), "[]")
	equal(t, fmt.Sprint(c.limits), fmt.Sprint(map[string]int64{"a": Unlimited, "b": Unlimited}))
}

// A program may plan its limits itself: here levels of quality from 3 down to 0, each of which
// saves a hundred.
func TestALimitIsPlannedByFunctions(t *testing.T) {
	m := requests()
	m.Limit = &Limit{
		Original: func(*Task) int64 { return 3 },
		Throttle: func(_ *Task, before int64, _ Throttling) (after, release int64) { return max(before-1, 0), 100 },
		Restore:  func(_ *Task, before, _ int64, _ Throttling) (after, use int64) { return before + 1, 100 },
	}
	m.Unit = ""
	c := newClients(t, m, false, client("a", 0))
	c.wants["a"] = 1050
	equal(t, strings.Join(c.second(), "; "), "throttle a: limit 3 → limit 2")
	c.wants["a"], c.limits["a"] = 1450, Unlimited
	c.limits = map[string]int64{} // the levels do not limit what is measured here
	equal(t, strings.Join(c.second(), "; "), "throttle a: limit 2 → limit 1")
	delete(c.limits, "a")
	equal(t, strings.Join(c.second(), "; "), "throttle a: limit 1 → limit 0")
	delete(c.limits, "a")
	if steps := c.second(); len(steps) != 0 {
		t.Errorf("at its lowest level: %v", steps)
	}
}

// Where an action throttles and stops, tasks are stopped only for the rest that limits cannot
// release.
func TestTasksAreStoppedForWhatLimitsCannotRelease(t *testing.T) {
	m := requests()
	m.Limit.Throttle = func(t *Task, before int64, by Throttling) (after, release int64) {
		floor := int64(400) // of each task
		if before < 0 {
			before = t.Values["requests"]
		}
		after = max(before*int64(100-by.Step)/100, floor)
		return after, max(t.Values["requests"]-after, 0)
	}
	c := newClients(t, m, true, client("a", 0), client("b", 1))
	c.wants = map[string]int64{"a": 700, "b": 500}
	for _, step := range c.second() {
		if strings.HasPrefix(step, "evict") {
			t.Errorf("throttling suffices: %s", step)
		}
	}
	c.wants = map[string]int64{"a": 900, "b": 900, "c": 900}
	c.s.Tasks = append(c.s.Tasks, client("c", 2))
	c.limits = map[string]int64{}
	steps := strings.Join(c.second(), "; ")
	if strings.Count(steps, "evict") != 1 || !strings.Contains(steps, "evict a by requests") {
		t.Errorf("three of at least 400 do not fit below 1000: %s", steps)
	}
}

// While a limit is being changed its release counts, and no other task pays for it.
func TestALimitThatIsBeingChangedCounts(t *testing.T) {
	c := newClients(t, requests(), false, client("a", 0), client("b", 1))
	set := func(a, b int64) *Result {
		c.s.Tasks[0].Values, c.s.Tasks[1].Values = map[string]int64{"requests": a}, map[string]int64{"requests": b}
		return c.sample("requests", a+b)
	}
	res := set(500, 600)
	equal(t, res.Steps[0].Task, "a")
	for i := range res.Steps {
		c.l.Begin(&res.Steps[i], c.at)
	}
	for range 5 {
		if next := set(500, 600); len(next.Steps) != 0 {
			t.Fatalf("while it is being changed: %v", next.Steps)
		}
	}
	c.l.Done(&res.Steps[0], errors.New("connection refused"), c.at)
	if next := set(500, 600); len(next.Steps) == 0 || next.Steps[0].Task != "b" {
		t.Errorf("it has failed: %v, want the next task", next.Steps)
	}
	equal(t, fmt.Sprint(c.l.Held()), "[{a 0}]") // it may have been done in part
}

// The record of a limit outlives the process, and says how it is set once more.
func TestALimitIsOnRecord(t *testing.T) {
	c := newClients(t, requests(), false, client("a", 0))
	c.wants["a"] = 1200
	c.second()
	data, err := c.l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLedger(data)
	if err != nil {
		t.Fatal(err)
	}
	steps := l.Limits(Key{Task: "a"}, c.p.registry)
	if len(steps) != 1 || steps[0].By() != "requests" || steps[0].After != 960 {
		t.Fatalf("it says %+v", steps)
	}
	l.Begin(&steps[0], c.at)
	l.Done(&steps[0], nil, c.at)
	equal(t, fmt.Sprint(l.Held()), "[{a 0}]")
}

func TestALimitThatCannotBeMeantIsRefused(t *testing.T) {
	for name, change := range map[string]func(m *Metric){
		"not throttleable": func(m *Metric) { m.Throttleable, m.ThrottleQuantified = false, false },
		"two ways":         func(m *Metric) { m.Throttle, m.Restore = InProportion("requests") },
	} {
		m := requests()
		change(&m)
		if _, err := NewRegistry(m); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A metric that follows the processors is throttled by quotas until its own gap is gone.
func TestAMetricInProportionToTheProcessors(t *testing.T) {
	m := requests()
	m.Limit = nil
	m.Throttle, m.Restore = InProportion("requests")
	c := newClients(t, m, true)
	for i, id := range []string{"a", "b"} {
		task := client(id, int32(i))
		task.CPU, task.CPUKnown = 2*Core, true
		task.Groups = []Group{{Name: id, CPU: 2 * Core, Quota: Unlimited}}
		task.Values = map[string]int64{"requests": 550}
		c.s.Tasks = append(c.s.Tasks, task)
	}
	res := c.sample("requests", int64(1100))
	equal(t, fmt.Sprintf("%d %s %s %v", len(res.Steps), res.Steps[0].Verb, res.Steps[0].Task, res.Steps[0].Release),
		"1 throttle a [{cpu 400000000} {requests 110}]")
}

// The keys that files name decide in the order in which they stand.
func TestSortersAreMadeOfTheNamesOfTheirKeys(t *testing.T) {
	task := func(id string, class plimsoll.Class, priority int32, cpu, value int64) Task {
		values := map[string]int64{"x": value}
		return Task{ID: id, Class: class, Priority: priority, CPU: cpu, CPUKnown: true, Values: values}
	}
	tasks := []Task{
		task("a", plimsoll.ClassBurstable, 1, 1, 9), task("b", plimsoll.ClassBestEffort, 2, 3, 5),
		task("c", plimsoll.ClassBestEffort, 1, 2, 7), task("d", plimsoll.ClassBestEffort, 2, 4, 5),
	}
	for keys, want := range map[string]string{
		"class priority cpu": "c d b a", "value": "a c b d", "class value": "c b d a",
		"priority value:x": "a c b d", "cpu": "d b c a",
	} {
		sorter, err := ParseSorter("x", strings.Fields(keys))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, strings.TrimSpace(sorter.ids(tasks...)), want)
	}
	for _, keys := range []string{"", "kind", "class class", "value:", "value:A b"} {
		if _, err := ParseSorter("x", strings.Fields(keys)); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%q: %v", keys, err)
		}
	}
}
