package qos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Options tune a node's planning. The zero value is usable. Policies can set each of them
// (plimsoll.QOSOptions).
type Options struct {
	// Excess is the distance below its line to which a metric is brought, in thousandths of the gap
	// (crane's execute-excess; its default is 100).
	Excess int64
	// Overdue is the time after its grace for which an evicted task may still be there. After that
	// its release is not counted on any more. 0: 30 s.
	Overdue time.Duration
	// Stale is the greatest age of a sample, and the time for which a metric may be missing before
	// its rule acts without a value. 0: 5 s.
	Stale time.Duration
	// Backoff is the time for which a task is left alone after an action on it failed. It doubles
	// with each failure, up to 32 times as long. 0: 5 s.
	Backoff time.Duration
	// Settle is the wait for the next step of a task that was throttled again soon after it got
	// something back. It doubles each time, up to the action's cool-down. 0: 10 s.
	Settle time.Duration
	// Lag is the time until a change shows in the figures of a sample. Until then the planned
	// amount is counted on, so that nothing is taken or given back twice for one cause. 0: 500 ms,
	// which means the next sample if there is one a second.
	Lag time.Duration
	// WholeSteps takes and gives back whole steps as crane does, even if the last one goes beyond
	// the line. Without it a step ends at the line.
	WholeSteps bool
}

func (o Options) withDefaults() Options {
	o.Excess = max(o.Excess, 0)
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Overdue, 30 * time.Second},
		{&o.Stale, 5 * time.Second},
		{&o.Backoff, 5 * time.Second},
		{&o.Settle, 10 * time.Second},
		{&o.Lag, 500 * time.Millisecond},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return o
}

// Policies holds the policies that concern one node, ready for planning. They are
// immutable.
type Policies struct {
	opt      Options
	registry *Registry
	actions  []plimsoll.Action // sorted by name
	rules    []rule            // in the order of the names of their NodeQOS, and in it as written
	tasks    []taskQOS         // sorted by name
	biased   bool              // some of tasks prefer or avoid
}

type rule struct {
	plimsoll.Rule
	key    string  // nodeqos/rule
	metric *Metric // nil: not registered
	action int     // index in actions; -1: there is no such action
	line   int64   // in the metric's finest unit
	target int64   // it acts down to here: Release, or line. Invariant: 0 < target <= line
}

type taskQOS struct {
	plimsoll.TaskQOS
	labels  []pair
	match   []requirement
	allowed []int // indices in actions, sorted
}

type requirement struct {
	scope  plimsoll.Scope
	not    bool
	values []string
	ranges [][2]int32 // ScopePriority
	class  []plimsoll.Class
	broken bool // some value cannot be read; excluding by it would match tasks that it was meant to spare
}

// Compile prepares the policies of the node with these attributes. Policies are taken as valid
// (plimsoll.Policy.Validate). An invalid part does not match any task. A rule on an unregistered
// metric is kept, since the node must report it.
func Compile(policies []plimsoll.Policy, registry *Registry, attributes map[string]string, opt Options) *Policies {
	p := &Policies{registry: registry}
	var nodes []*plimsoll.NodeQOS
	var tasks []*plimsoll.TaskQOS
	for i := range policies {
		switch policies[i].Kind() {
		case plimsoll.PolicyAction:
			p.actions = append(p.actions, *policies[i].Action)
		case plimsoll.PolicyTaskQOS:
			tasks = append(tasks, policies[i].TaskQOS)
		case plimsoll.PolicyNodeQOS:
			if covers(attributes, pairs(policies[i].NodeQOS.Selector)) {
				nodes = append(nodes, policies[i].NodeQOS)
			}
		}
	}
	p.opt = opt.with(nodes).withDefaults()
	slices.SortStableFunc(p.actions, func(a, b plimsoll.Action) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(tasks, func(a, b *plimsoll.TaskQOS) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(nodes, func(a, b *plimsoll.NodeQOS) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		for i := range n.Rules {
			p.rules = append(p.rules, p.rule(n.Name, &n.Rules[i]))
		}
	}
	for _, t := range tasks {
		p.tasks = append(p.tasks, p.task(t))
		p.biased = p.biased || t.Prefer || t.Avoid
	}
	return p
}

// Selected reports whether any rule concerns the node.
func (p *Policies) Selected() bool { return len(p.rules) > 0 }

func (p *Policies) rule(node string, r *plimsoll.Rule) rule {
	out := rule{Rule: *r, key: node + "/" + r.Name, metric: p.registry.Find(r.Metric), action: p.action(r.Action)}
	scale := int64(plimsoll.LineScale)
	if out.metric != nil {
		scale = out.metric.LineScale()
	}
	line, err := plimsoll.ParseLine(r.Waterline, scale)
	if err != nil || line <= 0 {
		line = plimsoll.MaxLine
	}
	out.line, out.target = line, line
	if release, err := plimsoll.ParseLine(r.Release, scale); r.Release != "" && err == nil {
		out.target = min(release, line)
	}
	return out
}

func (p *Policies) action(name string) int {
	i, found := slices.BinarySearchFunc(
		p.actions, name, func(a plimsoll.Action, name string) int { return strings.Compare(a.Name, name) },
	)
	if !found {
		return -1
	}
	return i
}

func (p *Policies) task(t *plimsoll.TaskQOS) taskQOS {
	out := taskQOS{TaskQOS: *t, labels: pairs(t.Labels)}
	for i := range t.Match {
		r := requirement{scope: t.Match[i].Scope, not: t.Match[i].Not, values: t.Match[i].Values}
		for _, v := range r.values {
			r.read(v)
		}
		out.match = append(out.match, r)
	}
	for _, name := range t.Allowed {
		if i := p.action(name); i >= 0 {
			out.allowed = append(out.allowed, i)
		}
	}
	slices.Sort(out.allowed)
	return out
}

// read parses a value of the requirement.
func (r *requirement) read(v string) {
	switch r.scope {
	case plimsoll.ScopePriority:
		from, to, ok := plimsoll.ParsePriorities(v)
		if !ok {
			r.broken = true
			return
		}
		r.ranges = append(r.ranges, [2]int32{from, to})
	case plimsoll.ScopeClass:
		class, ok := plimsoll.ParseClass(v)
		if !ok {
			r.broken = true
			return
		}
		r.class = append(r.class, class)
	case plimsoll.ScopeOwner, plimsoll.ScopeQueue:
	default:
		r.broken = true
	}
}

// holds reports whether the requirement holds for a task.
func (r *requirement) holds(t *Task) bool {
	if r.not {
		return !r.broken && !r.fits(t)
	}
	return r.fits(t)
}

func (r *requirement) fits(t *Task) bool {
	switch r.scope {
	case plimsoll.ScopeClass:
		return slices.Contains(r.class, t.Class)
	case plimsoll.ScopePriority:
		return slices.ContainsFunc(
			r.ranges, func(ab [2]int32) bool { return ab[0] <= t.Priority && t.Priority <= ab[1] },
		)
	case plimsoll.ScopeOwner:
		return slices.Contains(r.values, t.Owner)
	case plimsoll.ScopeQueue:
		return slices.ContainsFunc(r.values, func(path string) bool {
			rest, below := strings.CutPrefix(t.Queue, path)
			return below && (rest == "" || rest[0] == '.')
		})
	}
	return false
}

// matches reports whether the policy is for a task. A policy without labels and requirements is for
// no task.
func (q *taskQOS) matches(t *Task) bool {
	if len(q.labels) == 0 && len(q.match) == 0 {
		return false
	}
	if !covers(t.Labels, q.labels) {
		return false
	}
	for i := range q.match {
		if !q.match[i].holds(t) {
			return false
		}
	}
	return true
}

// pair is a label that a task or node must have.
type pair struct{ key, value string }

func pairs(m map[string]string) []pair {
	all := make([]pair, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, pair{key, m[key]})
	}
	return all
}

// covers reports whether have contains all pairs of want.
func covers(have map[string]string, want []pair) bool {
	for _, w := range want {
		if got, ok := have[w.key]; !ok || got != w.value {
			return false
		}
	}
	return true
}

// eligibility is the outcome of all TaskQOS policies for one task.
type eligibility struct {
	allowed  []bool // by action
	critical string // name of the TaskQOS that makes the task critical; empty: not critical
	bias     int8
}

// classify evaluates the TaskQOS policies for a task; allowed has one element for each action.
func (p *Policies) classify(t *Task, s *eligibility) {
	s.critical, s.bias = "", 0
	clear(s.allowed)
	for i := range p.tasks {
		q := &p.tasks[i]
		if !q.matches(t) {
			continue
		}
		for _, a := range q.allowed {
			s.allowed[a] = true
		}
		switch {
		case q.Critical && s.critical == "":
			s.critical = q.Name
		case q.Prefer && s.bias == 0:
			s.bias = -1
		case q.Avoid:
			s.bias = 1 // avoid wins over prefer
		}
	}
}

// Allowed returns the names of the actions that may act on a task and, if the task is critical, the
// reason why there are none.
func (p *Policies) Allowed(t *Task) (actions []string, critical string) {
	s := eligibility{allowed: make([]bool, len(p.actions))}
	p.classify(t, &s)
	if s.critical != "" {
		return nil, fmt.Sprintf("TaskQOS %s says that it is critical", s.critical)
	}
	for i, ok := range s.allowed {
		if ok {
			actions = append(actions, p.actions[i].Name)
		}
	}
	return actions, ""
}

// Unregistered returns the rules whose metric is not registered, as nodeqos/rule.
func (p *Policies) Unregistered() []string {
	var keys []string
	for i := range p.rules {
		if p.rules[i].metric == nil {
			keys = append(keys, p.rules[i].key)
		}
	}
	return keys
}
