package config

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// ParsePolicies reads a policy file: one document for each policy, each with its kind and name.
// name is for the messages. References to other policies are not checked. The error is a *Error
// with the problems of all documents.
func ParsePolicies(name string, data []byte) ([]plimsoll.Policy, error) {
	policies, _, err := ParsePoliciesAt(name, data)
	return policies, err
}

// ParsePoliciesAt is ParsePolicies that also returns the location of each policy, for errors that
// are found later.
func ParsePoliciesAt(name string, data []byte) ([]plimsoll.Policy, Places, error) {
	docs, err := parseDocuments(name, data)
	if err != nil {
		return nil, nil, err
	}
	places := Places{}
	var problems []Problem
	var policies []plimsoll.Policy
	first := map[plimsoll.PolicyRef]int{}
	for _, v := range docs {
		if v.kind == nullKind {
			continue
		}
		d := newDecoder(name, v)
		p := d.policy(v)
		if ref := p.Ref(); ref.Kind != 0 && ref.Name != "" {
			if line, twice := first[ref]; twice {
				d.problem(d.lineOf("name"), "name", "%s stands twice, first on line %d; remove one", ref, line)
			} else {
				first[ref] = v.line
			}
		}
		problems = append(problems, d.problems...)
		policies = append(policies, p)
		places[p.Ref().String()] = place{name, d.lines}
	}
	if len(problems) == 0 && len(policies) == 0 {
		problems = []Problem{{Msg: "is empty; a policy file has documents with kind: NodeQOS, Action or TaskQOS"}}
	}
	if len(policies) > plimsoll.MaxPolicies {
		problems = append(problems, Problem{Msg: "holds too many policies; at most 1000 are possible"})
	}
	if len(problems) > 0 {
		return nil, nil, newError(name, problems)
	}
	return policies, places, nil
}

// policyKind looks ahead for the kind of a policy, because the possible fields depend on it. It
// returns nil if there is none.
func policyKind(v *value) *value {
	for _, e := range v.entries {
		if e.name == "kind" {
			return e.value
		}
	}
	return nil
}

func (d *decoder) policy(v *value) (p plimsoll.Policy) {
	if !d.isMapping(v, "") {
		return p
	}
	kind := policyKind(v)
	if kind == nil {
		d.problem(v.line, "kind", "is missing; write NodeQOS, Action or TaskQOS")
		return p
	}
	ignored := field{"kind", func(*value, string) {}}
	switch plimsoll.ParsePolicyKind(kind.text) {
	case plimsoll.PolicyAction:
		p.Action = &plimsoll.Action{CoolDown: plimsoll.DefaultCoolDown}
		d.action(v, ignored, p.Action)
	case plimsoll.PolicyTaskQOS:
		p.TaskQOS = &plimsoll.TaskQOS{}
		d.taskQOS(v, ignored, p.TaskQOS)
	case plimsoll.PolicyNodeQOS:
		p.NodeQOS = &plimsoll.NodeQOS{}
		d.nodeQOS(v, ignored, p.NodeQOS)
	default:
		d.problem(kind.line, "kind", "is %s; write NodeQOS, Action or TaskQOS", kind.kindName())
		return p
	}
	if len(d.problems) == 0 {
		d.invalid(p.Validate())
	}
	return p
}

func (d *decoder) action(v *value, kind field, a *plimsoll.Action) {
	d.fields(v, "", kind,
		field{"name", d.text(&a.Name)},
		field{"coolDown", d.duration(&a.CoolDown)},
		field{"weight", func(v *value, path string) {
			a.Weight = &plimsoll.WeightAction{}
			d.fields(v, path, field{"idle", d.boolean(&a.Weight.Idle)}, field{"shares", d.shares(&a.Weight.Shares)})
		}},
		field{"throttle", func(v *value, path string) {
			a.Throttle = &plimsoll.ThrottleAction{}
			d.fields(
				v, path, field{"minRatio", d.number(&a.Throttle.MinRatio)}, field{"step", d.number(&a.Throttle.Step)},
			)
		}},
		field{"freeze", func(v *value, path string) {
			a.Freeze = &plimsoll.FreezeAction{}
			d.fields(v, path, field{"for", d.duration(&a.Freeze.For)})
		}},
		field{"evict", func(v *value, path string) {
			a.Evict = &plimsoll.EvictAction{}
			d.fields(v, path, field{"grace", d.duration(&a.Evict.Grace)}, field{"reclaim", d.boolean(&a.Evict.Reclaim)})
		}},
		field{"disableScheduling", d.boolean(&a.DisableScheduling)},
	)
}

func (d *decoder) shares(into *int64) func(v *value, path string) {
	return func(v *value, path string) {
		var n int32
		d.number(&n)(v, path)
		*into = int64(n)
	}
}

func (d *decoder) taskQOS(v *value, kind field, t *plimsoll.TaskQOS) {
	d.fields(v, "", kind,
		field{"name", d.text(&t.Name)},
		field{"labels", d.textMap(&t.Labels)},
		field{"match", func(v *value, path string) {
			d.list(v, path, func(v *value, path string) {
				var r plimsoll.Requirement
				operator := false
				d.fields(v, path,
					field{"scope", word(d, &r.Scope, parseScope, wordsFrom(plimsoll.ScopeClass))},
					field{"operator", func(v *value, path string) {
						operator = true
						word(d, &r.Not, parseOperator, []string{"In", "NotIn"})(v, path)
					}},
					field{"values", d.texts(&r.Values)},
				)
				if !operator && v.kind == mapKind {
					d.problem(v.line, path+".operator", "is missing; write In or NotIn")
				}
				t.Match = append(t.Match, r)
			})
		}},
		field{"allowed", d.texts(&t.Allowed)},
		field{"prefer", d.boolean(&t.Prefer)},
		field{"avoid", d.boolean(&t.Avoid)},
		field{"critical", d.boolean(&t.Critical)},
	)
}

func parseScope(s string) (plimsoll.Scope, bool) {
	scope := plimsoll.ParseScope(s)
	return scope, scope != 0
}

func parseOperator(s string) (not, ok bool) { return s == "NotIn", s == "In" || s == "NotIn" }

func parseStrategy(s string) (preview, ok bool) { return s == "Preview", s == "None" || s == "Preview" }

func parseOnMissing(s string) (hold, ok bool) { return s == "hold", s == "hold" || s == "all" }

func (d *decoder) nodeQOS(v *value, kind field, n *plimsoll.NodeQOS) {
	d.fields(v, "", kind,
		field{"name", d.text(&n.Name)},
		field{"selector", d.textMap(&n.Selector)},
		field{"options", d.qosOptions(&n.Options)},
		field{"rules", func(v *value, path string) {
			d.list(v, path, func(v *value, path string) {
				var r plimsoll.Rule
				d.fields(v, path,
					field{"name", d.text(&r.Name)},
					field{"metric", d.text(&r.Metric)},
					field{"waterline", d.text(&r.Waterline)},
					field{"release", d.text(&r.Release)},
					field{"triggerAfter", d.number(&r.TriggerAfter)},
					field{"restoreAfter", d.number(&r.RestoreAfter)},
					field{"action", d.text(&r.Action)},
					field{"strategy", word(d, &r.Preview, parseStrategy, []string{"None", "Preview"})},
					field{"onMissing", word(d, &r.Hold, parseOnMissing, []string{"hold", "all"})},
				)
				n.Rules = append(n.Rules, r)
			})
		}},
	)
}

// The printed forms of policies. The order of the fields is that of the documentation.
type (
	nodeQOSFile struct {
		Kind     string            `json:"kind"`
		Name     string            `json:"name"`
		Selector map[string]string `json:"selector,omitempty"`
		Options  *qosOptionsFile   `json:"options,omitempty"`
		Rules    []ruleFile        `json:"rules"`
	}
	ruleFile struct {
		Name         string   `json:"name"`
		Metric       string   `json:"metric"`
		Waterline    quantity `json:"waterline"`
		Release      quantity `json:"release,omitempty"`
		TriggerAfter int32    `json:"triggerAfter,omitempty"`
		RestoreAfter int32    `json:"restoreAfter,omitempty"`
		Action       string   `json:"action"`
		Strategy     string   `json:"strategy,omitempty"`
		OnMissing    string   `json:"onMissing,omitempty"`
	}
	actionFile struct {
		Kind              string        `json:"kind"`
		Name              string        `json:"name"`
		CoolDown          string        `json:"coolDown"`
		Weight            *weightFile   `json:"weight,omitempty"`
		Throttle          *throttleFile `json:"throttle,omitempty"`
		Freeze            *freezeFile   `json:"freeze,omitempty"`
		Evict             *evictFile    `json:"evict,omitempty"`
		DisableScheduling bool          `json:"disableScheduling,omitempty"`
	}
	weightFile struct {
		Idle   bool  `json:"idle,omitempty"`
		Shares int64 `json:"shares,omitempty"`
	}
	throttleFile struct {
		MinRatio int32 `json:"minRatio"`
		Step     int32 `json:"step"`
	}
	freezeFile struct {
		For string `json:"for"`
	}
	evictFile struct {
		Grace   string `json:"grace,omitempty"`
		Reclaim bool   `json:"reclaim,omitempty"`
	}
	taskQOSFile struct {
		Kind     string            `json:"kind"`
		Name     string            `json:"name"`
		Labels   map[string]string `json:"labels,omitempty"`
		Match    []requirementFile `json:"match,omitempty"`
		Allowed  []string          `json:"allowed,omitempty"`
		Prefer   bool              `json:"prefer,omitempty"`
		Avoid    bool              `json:"avoid,omitempty"`
		Critical bool              `json:"critical,omitempty"`
	}
	requirementFile struct {
		Scope    string   `json:"scope"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	}
)

// FormatPolicies prints policies as a policy file in YAML. ParsePolicies reads them back to the
// same policies, except for revisions, which are not part of a file.
func FormatPolicies(policies []plimsoll.Policy) ([]byte, error) {
	var out []byte
	for i := range policies {
		if i > 0 {
			out = append(out, "---\n"...)
		}
		tree, err := treeOf(PolicyFile(&policies[i]))
		if err != nil {
			return nil, err
		}
		out = tree.block(out, 0, false)
	}
	return out, nil
}

// PolicyFile returns a policy as a value that encoding/json and FormatYAML print as in a policy
// file.
func PolicyFile(p *plimsoll.Policy) any {
	switch p.Kind() {
	case plimsoll.PolicyAction:
		return actionFileOf(p.Action)
	case plimsoll.PolicyTaskQOS:
		return taskQOSFileOf(p.TaskQOS)
	case plimsoll.PolicyNodeQOS:
		return nodeQOSFileOf(p.NodeQOS)
	}
	return nil
}

func actionFileOf(a *plimsoll.Action) *actionFile {
	f := &actionFile{
		Kind: plimsoll.PolicyAction.String(), Name: a.Name, CoolDown: FormatDuration(a.CoolDown),
		DisableScheduling: a.DisableScheduling,
	}
	if w := a.Weight; w != nil {
		f.Weight = &weightFile{w.Idle, w.Shares}
	}
	if t := a.Throttle; t != nil {
		f.Throttle = &throttleFile{t.MinRatio, t.Step}
	}
	if z := a.Freeze; z != nil {
		f.Freeze = &freezeFile{durationText(z.For)}
	}
	if e := a.Evict; e != nil {
		f.Evict = &evictFile{FormatDuration(e.Grace), e.Reclaim}
	}
	return f
}

func durationText(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	return FormatDuration(d)
}

func taskQOSFileOf(t *plimsoll.TaskQOS) *taskQOSFile {
	f := &taskQOSFile{
		Kind: plimsoll.PolicyTaskQOS.String(), Name: t.Name, Labels: t.Labels, Allowed: t.Allowed, Prefer: t.Prefer,
		Avoid:    t.Avoid,
		Critical: t.Critical,
	}
	for i := range t.Match {
		r := &t.Match[i]
		operator := "In"
		if r.Not {
			operator = "NotIn"
		}
		f.Match = append(f.Match, requirementFile{r.Scope.String(), operator, r.Values})
	}
	return f
}

func nodeQOSFileOf(n *plimsoll.NodeQOS) *nodeQOSFile {
	f := &nodeQOSFile{
		Kind: plimsoll.PolicyNodeQOS.String(), Name: n.Name, Selector: n.Selector,
		Options: qosOptionsFileOf(&n.Options), Rules: make([]ruleFile, len(n.Rules)),
	}
	for i := range n.Rules {
		r := &n.Rules[i]
		f.Rules[i] = ruleFile{
			Name: r.Name, Metric: r.Metric, Waterline: quantity(r.Waterline), Release: quantity(r.Release),
			TriggerAfter: r.TriggerAfter,
			RestoreAfter: r.RestoreAfter, Action: r.Action,
		}
		if r.Preview {
			f.Rules[i].Strategy = "Preview"
		}
		if r.Hold {
			f.Rules[i].OnMissing = "hold"
		}
	}
	return f
}
