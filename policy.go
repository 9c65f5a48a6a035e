package plimsoll

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on policies. A larger policy is refused with an error that names the bound.
const (
	MaxPolicies           = 1_000   // of all kinds together
	MaxPolicyBytes        = 8 << 20 // stored size of all policies; every gateway and agent holds them too
	MaxRules              = 1_000   // in one NodeQOS
	MaxRulesTotal         = 10_000
	MaxPolicyValues       = 1_000 // values in one list of a policy
	MaxRuleSamples        = 3_600 // TriggerAfter and RestoreAfter
	MaxCoolDown           = 24 * time.Hour
	MaxEvictGrace         = time.Hour
	MaxFreeze             = 10 * time.Minute
	MaxShares       int64 = 262_144 // the largest weight that the kernel accepts for a control group
	MinShares       int64 = 2
)

// Class is the worth of a task to its node. When a waterline is crossed, a lower class is acted on
// first (Kubernetes' QoS classes, which crane's sorting compares first).
type Class uint8

// The classes, in the order in which they are acted on.
const (
	ClassUnset Class = iota // best-effort if the group requests extended resources, otherwise burstable
	ClassBestEffort
	ClassBurstable
	ClassGuaranteed

	numClasses
)

var classNames = [numClasses]string{"", "best-effort", "burstable", "guaranteed"}

// Known reports whether this version has the class.
func (c Class) Known() bool { return c < numClasses }

// String returns the class as in the job file.
func (c Class) String() string { return wordOf(classNames[:], c) }

// ParseClass reads a class; ok is false for an unknown one.
func ParseClass(s string) (c Class, ok bool) {
	i := slices.Index(classNames[:], s)
	return Class(max(i, 0)), i > 0
}

// PolicyKind is a kind of policy.
type PolicyKind uint8

// The kinds, in the order in which a set of new policies is applied.
const (
	PolicyAction PolicyKind = iota + 1
	PolicyTaskQOS
	PolicyNodeQOS

	numPolicyKinds
)

var policyKindNames = [numPolicyKinds]string{"", "Action", "TaskQOS", "NodeQOS"}

// Known reports whether this version has the kind.
func (k PolicyKind) Known() bool { return k >= PolicyAction && k < numPolicyKinds }

// String returns the kind as in policy files.
func (k PolicyKind) String() string { return wordOf(policyKindNames[:], k) }

// ParsePolicyKind is the inverse of String; an unknown name is zero.
func ParsePolicyKind(s string) PolicyKind { return PolicyKind(indexOf(policyKindNames[:], s)) }

// Policy is one policy of any kind. Invariant: exactly one of Action, TaskQOS and NodeQOS is set.
type Policy struct {
	Action   *Action
	TaskQOS  *TaskQOS
	NodeQOS  *NodeQOS
	Revision uint64 // revision of its last change
}

// Kind returns the kind of the field that is set; zero if none is.
func (p *Policy) Kind() PolicyKind {
	switch {
	case p.Action != nil:
		return PolicyAction
	case p.TaskQOS != nil:
		return PolicyTaskQOS
	case p.NodeQOS != nil:
		return PolicyNodeQOS
	}
	return 0
}

// Name returns the policy's name, which is unique among the policies of its kind.
func (p *Policy) Name() string {
	switch p.Kind() {
	case PolicyAction:
		return p.Action.Name
	case PolicyTaskQOS:
		return p.TaskQOS.Name
	case PolicyNodeQOS:
		return p.NodeQOS.Name
	}
	return ""
}

// Validate returns an error about the first wrong field, named as in policy files. It does not
// check that the metrics and actions exist.
func (p *Policy) Validate() error {
	n := 0
	for _, set := range []bool{p.Action != nil, p.TaskQOS != nil, p.NodeQOS != nil} {
		if set {
			n++
		}
	}
	if n > 1 {
		return Invalid("kind", "is given twice; a policy is one of Action, TaskQOS and NodeQOS")
	}
	switch p.Kind() {
	case PolicyAction:
		return p.Action.Validate()
	case PolicyTaskQOS:
		return p.TaskQOS.Validate()
	case PolicyNodeQOS:
		return p.NodeQOS.Validate()
	}
	return Invalid("kind", "is missing; use Action, TaskQOS or NodeQOS")
}

// NodeQOS holds the waterlines of the nodes that it selects (crane's NodeQOSEnsurancePolicy).
type NodeQOS struct {
	Name     string
	Selector map[string]string // attributes that a node must have, all of them; empty selects every node
	Options  QOSOptions
	Rules    []Rule
}

// Rule says which Action is taken when a metric is above its waterline.
type Rule struct {
	Name      string
	Metric    string // a registered metric, such as cpu_total_utilization
	Waterline string // a quantity in the metric's unit: 65 (percent), 3500m or 14 (cores), 48Gi (bytes)
	// Release is the line down to which the action continues once the rule is triggered; empty
	// means Waterline. Invariant: Release is at most Waterline.
	Release      string
	TriggerAfter int32  // number of consecutive samples above the waterline; 0 means 1
	RestoreAfter int32  // number of consecutive samples at the release line or below; 0 means 1
	Action       string // name of an Action
	Preview      bool   // report what the action would do, without doing it
	// Hold means that nothing is done while the metric is missing. Without it all candidates are
	// acted on, since nobody can say how many are enough.
	Hold bool
}

// Trigger returns TriggerAfter with its default.
func (r *Rule) Trigger() int32 { return max(r.TriggerAfter, 1) }

// Restore returns RestoreAfter with its default.
func (r *Rule) Restore() int32 { return max(r.RestoreAfter, 1) }

// Action is the list of measures that a rule takes. They are tried in this order: weight,
// throttle, freeze, evict. An action without any of them only closes the node for new tasks, if
// DisableScheduling says so.
type Action struct {
	Name string
	// CoolDown is how long scheduling stays disabled after the last sample above the line. Above
	// 0.
	CoolDown          time.Duration
	Weight            *WeightAction
	Throttle          *ThrottleAction
	Freeze            *FreezeAction
	Evict             *EvictAction
	DisableScheduling bool
}

// DefaultCoolDown is the default of coolDown in a policy file. It is crane's.
const DefaultCoolDown = 5 * time.Minute

// WeightAction lets other tasks go first on a busy processor. Idle processor time is still used.
type WeightAction struct {
	Idle   bool  // run only when nothing else wants to run (SCHED_IDLE for the group)
	Shares int64 // without Idle: the group's weight, in the units of cpu.shares (1024 = one core's worth)
}

// ThrottleAction lowers processor quotas step by step.
type ThrottleAction struct {
	MinRatio int32 // percent of the task's own limit; the quota is not lowered below it
	// Step is the amount taken away or given back at a time. It is in percent of the present
	// quota, or of the use where there is no quota.
	Step int32
}

// FreezeAction suspends tasks for a while.
type FreezeAction struct {
	For time.Duration // longest time; after it the tasks are thawed, whatever the metric says
}

// EvictAction stops tasks. They go back to their queue.
type EvictAction struct {
	Grace   time.Duration // time between SIGTERM and SIGKILL; 0: the task's own
	Reclaim bool          // for memory: first let the kernel reclaim as much as it can without killing a task
}

// TaskQOS says which tasks may be acted on, and how (crane's PodQOSEnsurancePolicy).
type TaskQOS struct {
	Name     string
	Labels   map[string]string // labels of the job, all of which must be equal
	Match    []Requirement     // requirements, all of which must hold; without Labels and Match no task is selected
	Allowed  []string          // names of Actions that may act on these tasks
	Prefer   bool              // act on these before others of their class and priority
	Avoid    bool              // act on these after others of their class and priority
	Critical bool              // never act on these, whatever other policies allow
}

// Scope is the property of a task that a Requirement compares.
type Scope uint8

// The scopes.
const (
	ScopeClass    Scope = iota + 1 // values: best-effort, burstable, guaranteed
	ScopePriority                  // values: a number such as 1000, or a range such as 1000-3000, ends included
	ScopeOwner                     // values: owners of jobs
	ScopeQueue                     // values: full paths; root.batch includes the queues below it

	numScopes
)

var scopeNames = [numScopes]string{"", "class", "priority", "owner", "queue"}

// Known reports whether this version has the scope.
func (s Scope) Known() bool { return s >= ScopeClass && s < numScopes }

// String returns the scope as in policy files.
func (s Scope) String() string { return wordOf(scopeNames[:], s) }

// ParseScope is the inverse of String; an unknown name is zero.
func ParseScope(s string) Scope { return Scope(indexOf(scopeNames[:], s)) }

// Requirement holds if one of its values fits or, with Not, if none does.
type Requirement struct {
	Scope  Scope
	Not    bool
	Values []string
}

// Validate reports the first field that is wrong.
func (n *NodeQOS) Validate() error {
	if err := validatePolicyName("name", n.Name); err != nil {
		return err
	}
	if err := validatePairs("selector", n.Selector); err != nil {
		return err
	}
	if err := n.Options.validate("options"); err != nil {
		return err
	}
	if len(n.Rules) == 0 {
		return Invalid("rules", "is empty; give at least one rule with a metric, a waterline and an action")
	}
	if len(n.Rules) > MaxRules {
		return Invalid("rules", "has %d rules; at most %d are possible in one NodeQOS", len(n.Rules), MaxRules)
	}
	names := make(map[string]int, len(n.Rules))
	for i := range n.Rules {
		r, field := &n.Rules[i], "rules["+strconv.Itoa(i)+"]"
		if err := r.validate(field); err != nil {
			return err
		}
		if first, taken := names[r.Name]; taken {
			return Invalid(
				field+".name", "%q is already the name of rules[%d]; give each rule its own name", r.Name, first,
			)
		}
		names[r.Name] = i
	}
	return nil
}

func (r *Rule) validate(field string) error {
	if !isLabel(r.Name) {
		return Invalid(
			field+".name",
			"%q is not a possible name: use 1 to 63 small letters, digits and - with a letter or digit at both ends",
			r.Name,
		)
	}
	if !IsMetricName(r.Metric) {
		return Invalid(
			field+".metric",
			"%q is not a possible name of a metric: use 1 to 128 letters, digits and _ : starting with a letter, such as cpu_total_utilization",
			r.Metric,
		)
	}
	if r.Waterline == "" {
		return Invalid(
			field+".waterline", "is missing; write a quantity in the unit of the metric, such as 65, 3500m or 48Gi",
		)
	}
	line, err := ParseLine(r.Waterline, LineScale)
	if err != nil {
		return Invalid(field+".waterline", "%v", err)
	}
	if line == 0 {
		return Invalid(field+".waterline", "is 0, and every node is always above that; give a line above 0")
	}
	if r.Release != "" {
		release, err := ParseLine(r.Release, LineScale)
		if err != nil {
			return Invalid(field+".release", "%v", err)
		}
		if release > line {
			return Invalid(
				field+".release", "%s is above the waterline, %s; give a line at or below it", r.Release, r.Waterline,
			)
		}
	}
	for _, n := range []struct {
		name  string
		value int32
	}{{".triggerAfter", r.TriggerAfter}, {".restoreAfter", r.RestoreAfter}} {
		if n.value < 0 || n.value > MaxRuleSamples {
			return Invalid(field+n.name, "is %d; give a number of samples from 1 to %d", n.value, MaxRuleSamples)
		}
	}
	if r.Action == "" {
		return Invalid(field+".action", "is missing; give the name of an Action")
	}
	if !isLabel(r.Action) {
		return Invalid(
			field+".action", "%q is not a possible name of an Action: use 1 to 63 small letters, digits and -",
			r.Action,
		)
	}
	return nil
}

// Validate reports the first field that is wrong.
func (a *Action) Validate() error {
	if err := validatePolicyName("name", a.Name); err != nil {
		return err
	}
	if a.CoolDown <= 0 || a.CoolDown > MaxCoolDown {
		return Invalid("coolDown", "is %v; give a duration above 0 and up to %v, such as 5m", a.CoolDown, MaxCoolDown)
	}
	if a.Weight == nil && a.Throttle == nil && a.Freeze == nil && a.Evict == nil && !a.DisableScheduling {
		return Invalid("action", "does nothing; give weight, throttle, freeze, evict or disableScheduling")
	}
	if w := a.Weight; w != nil {
		if w.Idle && w.Shares != 0 {
			return Invalid("weight.shares", "has no meaning beside idle: true; give one of them")
		}
		if !w.Idle && (w.Shares < MinShares || w.Shares > MaxShares) {
			return Invalid(
				"weight.shares", "is %d; give %d to %d (1024 is one core's worth), or idle: true", w.Shares, MinShares,
				MaxShares,
			)
		}
	}
	if t := a.Throttle; t != nil {
		if t.MinRatio < 0 || t.MinRatio > 100 {
			return Invalid("throttle.minRatio", "is %d; give a percentage of the task's limit, 0 to 100", t.MinRatio)
		}
		if t.Step < 1 || t.Step > 100 {
			return Invalid(
				"throttle.step", "is %d; give a percentage of the quota to take away at a time, 1 to 100", t.Step,
			)
		}
	}
	if f := a.Freeze; f != nil && (f.For <= 0 || f.For > MaxFreeze) {
		return Invalid(
			"freeze.for", "is %v; give a duration up to %v, after which the task is thawed", f.For, MaxFreeze,
		)
	}
	if e := a.Evict; e != nil && (e.Grace < 0 || e.Grace > MaxEvictGrace) {
		return Invalid("evict.grace", "is %v; give a duration up to %v", e.Grace, MaxEvictGrace)
	}
	return nil
}

// Validate reports the first field that is wrong.
func (t *TaskQOS) Validate() error {
	if err := validatePolicyName("name", t.Name); err != nil {
		return err
	}
	if err := validatePairs("labels", t.Labels); err != nil {
		return err
	}
	if len(t.Labels) == 0 && len(t.Match) == 0 {
		return Invalid("match", "is empty, as labels is, so no task would match; give at least one requirement")
	}
	if len(t.Match) > MaxPolicyValues {
		return Invalid("match", "has %d entries; at most %d are possible", len(t.Match), MaxPolicyValues)
	}
	if len(t.Allowed) > MaxPolicyValues {
		return Invalid("allowed", "has %d entries; at most %d are possible", len(t.Allowed), MaxPolicyValues)
	}
	for i := range t.Match {
		if err := t.Match[i].validate("match[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	for i, name := range t.Allowed {
		if err := validatePolicyName("allowed["+strconv.Itoa(i)+"]", name); err != nil {
			return err
		}
	}
	if t.Prefer && t.Avoid {
		return Invalid("avoid", "and prefer exclude each other; give one of them")
	}
	if t.Critical && len(t.Allowed) > 0 {
		return Invalid("allowed", "has no meaning for critical tasks, which are never acted on; leave it out")
	}
	return nil
}

func (r *Requirement) validate(field string) error {
	if !r.Scope.Known() {
		return Invalid(field+".scope", "is not known; use %s", oneOf(scopeNames[ScopeClass:]))
	}
	if len(r.Values) == 0 || len(r.Values) > MaxPolicyValues {
		return Invalid(field+".values", "has %d entries; give 1 to %d", len(r.Values), MaxPolicyValues)
	}
	for i, v := range r.Values {
		field := field + ".values[" + strconv.Itoa(i) + "]"
		switch r.Scope {
		case ScopeClass:
			if _, ok := ParseClass(v); !ok {
				return Invalid(field, "%q is not a class; use %s", v, oneOf(classNames[ClassBestEffort:]))
			}
		case ScopePriority:
			if _, _, ok := ParsePriorities(v); !ok {
				return Invalid(
					field, "%q is not a priority; write a number such as 1000, or a range such as 1000-3000", v,
				)
			}
		case ScopeQueue:
			if err := ValidateQueuePath(field, v); err != nil {
				return err
			}
		case ScopeOwner:
			if v == "" || len(v) > 128 {
				return Invalid(field, "an owner has 1 to 128 characters")
			}
		}
	}
	return nil
}

func validatePairs(field string, pairs map[string]string) error {
	if len(pairs) > MaxLabels {
		return Invalid(field, "has %d entries; at most %d are possible", len(pairs), MaxLabels)
	}
	for _, pair := range SortedPairs(pairs) {
		if key, value := pair[0], pair[1]; key == "" || len(key) > MaxLabelKey || len(value) > MaxLabelValue {
			return Invalid(field, "%q: a key has 1 to %d bytes and a value at most %d", key, MaxLabelKey, MaxLabelValue)
		}
	}
	return nil
}

// IsMetricName reports whether s can be the name of a metric, as Prometheus writes them.
func IsMetricName(s string) bool {
	return s != "" && len(s) <= 128 && madeOf(s, "_:") && (s[0] < '0' || s[0] > '9')
}

// PolicyRef names a policy.
type PolicyRef struct {
	Kind PolicyKind
	Name string
}

// String returns the reference for people, such as "Action shed-batch".
func (r PolicyRef) String() string { return r.Kind.String() + " " + r.Name }

// Ref returns the name of the policy.
func (p *Policy) Ref() PolicyRef { return PolicyRef{p.Kind(), p.Name()} }

// isLabel reports whether s is a DNS label (RFC 1123), as Kubernetes uses them for names.
func isLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
}

func validatePolicyName(field, name string) error {
	if name == "" {
		return Invalid(
			field, "is missing; give 1 to 63 small letters, digits and - starting with a letter, such as shed-batch",
		)
	}
	if !isLabel(name) || name[0] < 'a' {
		return Invalid(
			field,
			"%q is not a possible name: use 1 to 63 small letters, digits and - starting with a letter, such as shed-batch",
			name,
		)
	}
	return nil
}

// ParsePriorities reads a priority such as 1000, or a range such as -10-3000, ends included.
func ParsePriorities(s string) (from, to int32, ok bool) {
	first, second := s, s
	if i := strings.IndexByte(strings.TrimPrefix(s, "-"), '-'); i > 0 {
		i += len(s) - len(strings.TrimPrefix(s, "-"))
		first, second = s[:i], s[i+1:]
	}
	a, err := strconv.ParseInt(first, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	b, err := strconv.ParseInt(second, 10, 32)
	return int32(a), int32(b), err == nil && a <= b
}

// Selects reports whether the policy applies to a node with these attributes.
func (n *NodeQOS) Selects(attributes map[string]string) bool {
	for _, pair := range SortedPairs(n.Selector) {
		if value, has := attributes[pair[0]]; !has || value != pair[1] {
			return false
		}
	}
	return true
}

// InPolicy adds to an error the policy of a set in which the fault is.
func InPolicy(ref PolicyRef, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	told := *e
	if told.Op = ref.Kind.String(); ref.Name != "" {
		told.Op = ref.String()
	}
	return &told
}
