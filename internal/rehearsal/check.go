package rehearsal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// check returns an error for every reference to a missing policy and every impossible rule. It
// notes parts that are probably mistakes.
func (x *rehearsal) check() error {
	var problems []error
	rules := 0
	wrong := func(p *plimsoll.Policy, err error) { problems = append(problems, plimsoll.InPolicy(p.Ref(), err)) }
	for i := range x.Policies {
		p := &x.Policies[i]
		if strings.HasPrefix(p.Name(), qos.ReservedPrefix) {
			wrong(
				p, plimsoll.Invalid("name", "%q begins as the names of built-in policies do; choose another", p.Name()),
			)
		}
		switch p.Kind() {
		case plimsoll.PolicyTaskQOS:
			for j, name := range p.TaskQOS.Allowed {
				if x.action(name) == nil {
					wrong(p, plimsoll.Invalid(fmt.Sprintf("allowed[%d]", j), "%s", x.noAction(name)))
				}
			}
		case plimsoll.PolicyNodeQOS:
			rules += len(p.NodeQOS.Rules)
			for j := range p.NodeQOS.Rules {
				if err := x.checkRule(p, j); err != nil {
					wrong(p, err)
				}
			}
			if x.snapshot != nil && !p.NodeQOS.Selects(x.Node.Attributes) {
				x.note("%s does not select this node", p.Ref())
			}
		case plimsoll.PolicyAction:
			if !x.used(p.Action.Name) {
				x.note("%s is named by no rule of these files", p.Ref())
			}
		}
	}
	if rules > plimsoll.MaxRulesTotal {
		problems = append(
			problems,
			plimsoll.Errorf(
				plimsoll.CodeExhausted, "all NodeQOS together have %d rules; at most %d are possible", rules,
				plimsoll.MaxRulesTotal,
			),
		)
	}
	return errors.Join(problems...)
}

func (x *rehearsal) note(format string, args ...any) {
	x.out.Notes = append(x.out.Notes, fmt.Sprintf(format, args...))
}

func (x *rehearsal) checkRule(p *plimsoll.Policy, i int) error {
	r, field := &p.NodeQOS.Rules[i], fmt.Sprintf("rules[%d]", i)
	action := x.action(r.Action)
	if action == nil {
		return plimsoll.Invalid(field+".action", "%s", x.noAction(r.Action))
	}
	if x.unknown(r.Metric) {
		x.note(
			"%s, rule %s: %s is defined on the node, and the rule is left out; give the agent's file with --metrics",
			p.Ref(), r.Name, r.Metric,
		)
		return nil
	}
	if err := x.Registry.CheckRule(r); err != nil {
		var e *plimsoll.Error
		if errors.As(err, &e) {
			return plimsoll.Invalid(field+"."+e.Field, "%s", e.Msg)
		}
		return err
	}
	m := x.Registry.Find(r.Metric)
	acts := action.Weight != nil || action.Throttle != nil || action.Freeze != nil || action.Evict != nil
	switch {
	case acts && !x.allowed(r.Action):
		x.note("%s, rule %s: no TaskQOS allows %s, so no task is acted on", p.Ref(), r.Name, r.Action)
	case action.Evict == nil && !m.Throttleable && acts:
		x.note(
			"%s, rule %s: %s is not lowered by throttling; only evict in %s would help", p.Ref(), r.Name, r.Metric,
			r.Action,
		)
	}
	if x.snapshot != nil && m.Most != nil && p.NodeQOS.Selects(x.Node.Attributes) {
		most := m.Most(&qos.View{Snapshot: x.snapshot})
		if line, err := plimsoll.ParseLine(r.Waterline, m.LineScale()); err == nil && line >= most && most > 0 {
			x.note(
				"%s, rule %s: the line, %s, is never crossed on this node: %s is at most %s", p.Ref(), r.Name,
				m.Format(line), r.Metric, m.Format(most),
			)
		}
	}
	return nil
}

func (x *rehearsal) noAction(name string) string {
	where := "these files"
	if x.Others != nil {
		where += " or on the server"
	}
	return fmt.Sprintf("there is no Action %q in %s", name, where)
}

// each calls do with all policies until do returns true.
func (x *rehearsal) each(do func(p *plimsoll.Policy) bool) bool {
	for _, list := range [][]plimsoll.Policy{x.Policies, x.Others} {
		for i := range list {
			if do(&list[i]) {
				return true
			}
		}
	}
	return false
}

func (x *rehearsal) action(name string) (found *plimsoll.Action) {
	x.each(func(p *plimsoll.Policy) bool {
		if p.Kind() == plimsoll.PolicyAction && p.Action.Name == name {
			found = p.Action
		}
		return found != nil
	})
	return found
}

func (x *rehearsal) allowed(action string) bool {
	return x.each(func(p *plimsoll.Policy) bool {
		return p.Kind() == plimsoll.PolicyTaskQOS && slices.Contains(p.TaskQOS.Allowed, action)
	})
}

func (x *rehearsal) used(action string) bool {
	return x.each(func(p *plimsoll.Policy) bool {
		return p.Kind() == plimsoll.PolicyNodeQOS &&
			slices.ContainsFunc(p.NodeQOS.Rules, func(r plimsoll.Rule) bool { return r.Action == action })
	})
}

// unknown reports whether a metric is defined on the node's agent only.
func (x *rehearsal) unknown(metric string) bool {
	return x.Registry.Find(metric) == nil && slices.Contains(x.Node.Announced, metric)
}
