package state

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// PolicyChange is the effect of applying a policy.
type PolicyChange uint8

// The changes.
const (
	PolicyCreated PolicyChange = iota + 1
	PolicyChanged
	PolicyUnchanged
)

// PolicyOutcome is the effect of a set on one of its policies.
type PolicyOutcome struct {
	Ref    plimsoll.PolicyRef
	Change PolicyChange
}

// policies is the table of policies. A policy is never changed in place, but replaced.
type policies struct {
	byRef map[plimsoll.PolicyRef]*plimsoll.Policy
	rules int // number of rules of all NodeQOS
	bytes int // sum of storedBytes over all policies
}

// ApplyPolicies creates and replaces all policies of a set, or none. The policies may refer to each
// other. With dryRun nothing changes; the result is the same.
func (s *State) ApplyPolicies(set []plimsoll.Policy, dryRun bool) ([]PolicyOutcome, error) {
	if err := s.checkSetBytes(set); err != nil {
		return nil, err
	}
	if err := s.checkDisk(); err != nil && !dryRun {
		return nil, err
	}
	incoming := make(map[plimsoll.PolicyRef]*plimsoll.Policy, len(set))
	created, rules, bytes := 0, s.policies.rules, s.policies.bytes
	for i := range set {
		p, ref := &set[i], set[i].Ref()
		if err := p.Validate(); err != nil {
			return nil, plimsoll.InPolicy(ref, err)
		}
		if incoming[ref] != nil {
			return nil, plimsoll.Invalid("policies", "%s stands twice; give it once", ref)
		}
		incoming[ref] = p
		old := s.policies.byRef[ref]
		if old == nil {
			created++
		}
		rules += rulesOf(p) - rulesOf(old)
		bytes += storedBytes(p) - storedBytes(old)
	}
	if n := len(s.policies.byRef) + created; n > plimsoll.MaxPolicies {
		return nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "there would be %d policies; at most %d are possible", n, plimsoll.MaxPolicies,
		)
	}
	if rules > plimsoll.MaxRulesTotal {
		return nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "all NodeQOS together would have %d rules; at most %d are possible", rules,
			plimsoll.MaxRulesTotal,
		)
	}
	if most := plimsoll.MaxPolicyBytes; bytes > most && bytes > s.policies.bytes {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
			"policies: all together would take %d bytes; at most %d are possible; make some shorter, or delete those that nobody needs", bytes, most)
	}
	for i := range set {
		if err := s.checkPolicy(&set[i], incoming); err != nil {
			return nil, plimsoll.InPolicy(set[i].Ref(), err)
		}
	}
	outcomes := make([]PolicyOutcome, len(set))
	for i := range set {
		outcomes[i] = PolicyOutcome{set[i].Ref(), s.put(&set[i], dryRun)}
	}
	return outcomes, nil
}

func rulesOf(p *plimsoll.Policy) int {
	if p == nil || p.NodeQOS == nil {
		return 0
	}
	return len(p.NodeQOS.Rules)
}

func (s *State) put(p *plimsoll.Policy, dryRun bool) PolicyChange {
	ref := p.Ref()
	old := s.policies.byRef[ref]
	if old != nil && reflect.DeepEqual(old.Action, p.Action) && reflect.DeepEqual(old.TaskQOS, p.TaskQOS) &&
		reflect.DeepEqual(old.NodeQOS, p.NodeQOS) {
		return PolicyUnchanged
	}
	if !dryRun {
		s.policies.byRef[ref] = &plimsoll.Policy{Action: p.Action, TaskQOS: p.TaskQOS, NodeQOS: p.NodeQOS}
		s.policies.rules += rulesOf(p) - rulesOf(old)
		s.policies.bytes += storedBytes(p) - storedBytes(old)
		s.markPolicy(ref)
	}
	if old == nil {
		return PolicyCreated
	}
	return PolicyChanged
}

// checkPolicy checks a policy's references to other policies and to metrics. incoming holds the
// policies of the same set.
func (s *State) checkPolicy(p *plimsoll.Policy, incoming map[plimsoll.PolicyRef]*plimsoll.Policy) error {
	if strings.HasPrefix(p.Name(), qos.ReservedPrefix) {
		return plimsoll.Invalid(
			"name", "%q begins as the names of built-in policies do; choose one that does not begin with %s", p.Name(),
			qos.ReservedPrefix,
		)
	}
	hasAction := func(field, name string) error {
		ref := plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: name}
		if incoming[ref] == nil && s.policies.byRef[ref] == nil {
			return plimsoll.Invalid(field, "there is no Action %q; apply it first, or in the same set", name)
		}
		return nil
	}
	switch p.Kind() {
	case plimsoll.PolicyTaskQOS:
		for i, name := range p.TaskQOS.Allowed {
			if err := hasAction(fmt.Sprintf("allowed[%d]", i), name); err != nil {
				return err
			}
		}
	case plimsoll.PolicyNodeQOS:
		for i := range p.NodeQOS.Rules {
			r, field := &p.NodeQOS.Rules[i], fmt.Sprintf("rules[%d]", i)
			if err := hasAction(field+".action", r.Action); err != nil {
				return err
			}
			if err := s.checkMetric(field, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMetric checks that a node measures the metric of a rule, and that the lines of a built-in
// metric are possible.
func (s *State) checkMetric(field string, r *plimsoll.Rule) error {
	if s.metrics.Find(r.Metric) != nil {
		if err := s.metrics.CheckRule(r); err != nil {
			return plimsoll.Within(field, err)
		}
		return nil
	}
	announced := s.announced()
	if slices.Contains(announced, r.Metric) {
		return nil
	}
	possible := append(s.metrics.Names(), announced...)
	more := ""
	if n := len(possible) - maxNamedMetrics; n > 0 {
		possible, more = possible[:maxNamedMetrics], fmt.Sprintf(" and %d more", n)
	}
	return plimsoll.Invalid(
		field+".metric", "%q is measured by no node; there are %s%s", r.Metric, strings.Join(possible, ", "), more,
	)
}

// maxNamedMetrics is the largest number of metrics in an error.
const maxNamedMetrics = 40

// announced returns the names of the further metrics that nodes measure, sorted.
func (s *State) announced() []string {
	seen := map[string]bool{}
	for _, n := range s.slots {
		if n == nil {
			continue
		}
		for _, name := range n.Facts.Metrics {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// DeletePolicy deletes a policy. An Action that other policies name is refused with CodeConflict.
func (s *State) DeletePolicy(ref plimsoll.PolicyRef) error {
	old := s.policies.byRef[ref]
	if old == nil {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no %s", ref)
	}
	if users := s.usersOf(ref); len(users) > 0 {
		more := ""
		if n := len(users) - maxNamedUsers; n > 0 {
			users, more = users[:maxNamedUsers], fmt.Sprintf(" and %d more", n)
		}
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "%s is in use by %s%s; change or delete them first", ref, strings.Join(users, ", "),
			more,
		)
	}
	delete(s.policies.byRef, ref)
	s.policies.bytes -= storedBytes(old)
	s.policies.rules -= rulesOf(old)
	s.dirty.deletedPolicies = append(s.dirty.deletedPolicies, ref)
	s.dirty.bytes += policyKey + len(ref.Name)
	return nil
}

// maxNamedUsers is the largest number of policies in an error.
const maxNamedUsers = 10

// usersOf returns the policies that name an Action, as texts for an error.
func (s *State) usersOf(ref plimsoll.PolicyRef) []string {
	if ref.Kind != plimsoll.PolicyAction {
		return nil
	}
	var users []string
	for _, p := range s.Policies() {
		switch p.Kind() {
		case plimsoll.PolicyTaskQOS:
			if slices.Contains(p.TaskQOS.Allowed, ref.Name) {
				users = append(users, p.Ref().String())
			}
		case plimsoll.PolicyNodeQOS:
			i := slices.IndexFunc(p.NodeQOS.Rules, func(r plimsoll.Rule) bool { return r.Action == ref.Name })
			if i >= 0 {
				users = append(users, fmt.Sprintf("%s (rule %s)", p.Ref(), p.NodeQOS.Rules[i].Name))
			}
		}
	}
	return users
}

// Policies returns all policies, sorted by kind and name. They must not be changed.
func (s *State) Policies() []*plimsoll.Policy {
	refs := slices.SortedFunc(maps.Keys(s.policies.byRef), compareRefs)
	out := make([]*plimsoll.Policy, len(refs))
	for i, ref := range refs {
		out[i] = s.policies.byRef[ref]
	}
	return out
}

func compareRefs(a, b plimsoll.PolicyRef) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

func (s *State) markPolicy(ref plimsoll.PolicyRef) {
	s.dirty.policies = append(s.dirty.policies, ref)
	s.dirty.bytes += policyBytes(s.policies.byRef[ref])
}

// takePolicies hands out the policies that were put or deleted in the turn: each once, as it is at
// the end of the turn.
func (s *State) takePolicies(c *Changes) {
	refs := append(s.dirty.policies, s.dirty.deletedPolicies...)
	slices.SortFunc(refs, compareRefs)
	for _, ref := range slices.Compact(refs) {
		p := s.policies.byRef[ref]
		if p == nil {
			c.DeletedPolicies = append(c.DeletedPolicies, ref)
			continue
		}
		p.Revision = s.revision
		c.Policies = append(c.Policies, *p)
	}
}

// loadPolicy adds a stored policy. Its references were checked when it was applied, and are not
// checked again.
func (s *State) loadPolicy(p *plimsoll.Policy) error {
	ref := p.Ref()
	if ref.Kind == 0 || ref.Name == "" || s.policies.byRef[ref] != nil {
		return corrupt("policy %q twice, or without kind or name", ref)
	}
	s.policies.byRef[ref] = p
	s.policies.rules += rulesOf(p)
	s.policies.bytes += storedBytes(p)
	return nil
}
