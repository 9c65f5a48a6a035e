package qos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// policyObject is a policy object of any kind, as cases of validation have it.
type policyObject struct {
	Metadata struct{ Name string }
	Spec     struct {
		Selector         labelSelector
		NodeQualityProbe struct{ NodeLocalGet, HTTPGet json.RawMessage }
		Rules            []struct {
			Name, ActionName, Strategy           string
			AvoidanceThreshold, RestoreThreshold int32
			MetricRule                           *struct {
				Name, Value string
				Selector    json.RawMessage
			}
		}

		CoolDownSeconds int64
		Description     string
		Throttle        *struct {
			CPUThrottle    struct{ MinCPURatio, StepCPURatio int32 }
			MemoryThrottle json.RawMessage
		}
		Eviction *struct{ TerminationGracePeriodSeconds int64 }
	}
}

func (c *conformanceCase) object() *policyObject {
	o := &policyObject{}
	decode := json.NewDecoder(bytes.NewReader(c.Object))
	decode.DisallowUnknownFields()
	if len(c.Object) == 0 || decode.Decode(o) != nil {
		return nil
	}
	return o
}

// policy converts an object.
func (o *policyObject) policy(t *testing.T, kind string) *plimsoll.Policy {
	t.Helper()
	switch kind {
	case "NodeQOS":
		q := &plimsoll.NodeQOS{Name: o.Metadata.Name, Selector: o.Spec.Selector.MatchLabels}
		for _, r := range o.Spec.Rules {
			rule := plimsoll.Rule{
				Name: r.Name, TriggerAfter: r.AvoidanceThreshold, RestoreAfter: r.RestoreThreshold,
				Action: r.ActionName, Preview: r.Strategy == "Preview",
			}
			if m := r.MetricRule; m != nil {
				rule.Metric, rule.Waterline = m.Name, m.Value
			}
			q.Rules = append(q.Rules, rule)
		}
		return &plimsoll.Policy{NodeQOS: q}
	case "AvoidanceAction":
		a := &plimsoll.Action{
			Name: o.Metadata.Name, CoolDown: time.Duration(o.Spec.CoolDownSeconds) * time.Second,
			DisableScheduling: true,
		}
		if x := o.Spec.Throttle; x != nil {
			a.Throttle = &plimsoll.ThrottleAction{MinRatio: x.CPUThrottle.MinCPURatio, Step: x.CPUThrottle.StepCPURatio}
		}
		if x := o.Spec.Eviction; x != nil {
			a.Evict = &plimsoll.EvictAction{Grace: time.Duration(x.TerminationGracePeriodSeconds) * time.Second}
		}
		return &plimsoll.Policy{Action: a}
	}
	t.Fatalf("nobody knows the kind %q", kind)
	return nil
}

// valid validates a policy as the coordinator does: by itself, and its rules against the table of
// metrics.
func valid(p *plimsoll.Policy, registry *Registry) error {
	if err := p.Validate(); err != nil || p.NodeQOS == nil {
		return err
	}
	for i := range p.NodeQOS.Rules {
		if err := registry.CheckRule(&p.NodeQOS.Rules[i]); err != nil {
			var e *plimsoll.Error
			if errors.As(err, &e) {
				e.Field = fmt.Sprintf("rules[%d].%s", i, e.Field)
			}
			return err
		}
	}
	return nil
}

// theirs converts the name of a field.
var theirs = strings.NewReplacer(
	".action", ".actionName", ".waterline", ".metricRule", ".metric", ".metricRule", "triggerAfter",
	"avoidanceThreshold",
	"restoreAfter", "restoreThreshold", "coolDown", "spec.coolDownSeconds", "throttle.minRatio",
	"spec.throttle.cpuThrottle.minCPURatio",
	"throttle.step", "spec.throttle.cpuThrottle.stepCPURatio", "evict.grace",
	"spec.eviction.terminationGracePeriodSeconds",
)

// checkValid compares whether an object is valid. If it is not, our field must be one of the fields
// at fault, or contain one.
func (c *conformanceCase) checkValid(t *testing.T) []string {
	o := c.object()
	if o == nil {
		t.Fatalf("the object has something that the adapter does not know: %s", c.Object)
	}
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	want := into[struct {
		Valid  bool
		Fields []string
	}](t, c.Expected)
	found := valid(o.policy(t, c.Kind), registry)
	if found == nil || want.Valid {
		return unlike("valid", found == nil, want.Valid)
	}
	var e *plimsoll.Error
	if !errors.As(found, &e) {
		return []string{fmt.Sprintf("%v names no field", found)}
	}
	field := theirs.Replace(e.Field)
	if e.Field == "name" {
		field = "metadata.name"
	}
	if !slices.ContainsFunc(want.Fields, func(f string) bool { return f == field || strings.HasPrefix(f, field+".") }) {
		return []string{fmt.Sprintf("fields: got %s, want one of %s", field, want.Fields)}
	}
	return nil
}

// usesProbe reports whether an object does not have just the node's own probe.
func (c *conformanceCase) usesProbe() bool {
	o := c.object()
	if o == nil || c.Kind != "NodeQOS" {
		return false
	}
	probe := &o.Spec.NodeQualityProbe
	return probe.HTTPGet != nil || probe.NodeLocalGet == nil
}

func (c *conformanceCase) stepsByZero() bool {
	o := c.object()
	return o != nil && o.Spec.Throttle != nil && o.Spec.Throttle.CPUThrottle.StepCPURatio == 0
}

// selectsByExpression reports whether an object selects nodes, or series of a metric, by more than
// equality of labels.
func (c *conformanceCase) selectsByExpression() bool {
	o := c.object()
	if o == nil {
		return false
	}
	for _, r := range o.Spec.Rules {
		if r.MetricRule != nil && len(r.MetricRule.Selector) > 0 {
			return true
		}
	}
	_, equality := o.Spec.Selector.pairs()
	return !equality
}

// kubernetesName matches the key of a Kubernetes label, behind its prefix, and its value.
var kubernetesName = regexp.MustCompile(`^([a-z0-9.-]+/)?([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)

// selectsOddly reports whether an object selects by labels that Kubernetes does not allow.
func (c *conformanceCase) selectsOddly() bool {
	o := c.object()
	if o == nil {
		return false
	}
	for _, pair := range plimsoll.SortedPairs(o.Spec.Selector.MatchLabels) {
		if pair[0] == "" || !kubernetesName.MatchString(pair[0]) || !kubernetesName.MatchString(pair[1]) {
			return true
		}
	}
	return false
}

// throttlesForMemory reports whether lines of throttleable metrics stand beside lines of others.
func (c *conformanceCase) throttlesForMemory() bool {
	if c.Input == nil || c.Input.StepCPURatio == nil {
		return false
	}
	can, cannot := false, false
	for _, m := range builtin() {
		if _, has := c.Input.Watermarks[m.Name]; has {
			can, cannot = can || m.Throttleable, cannot || !m.Throttleable
		}
	}
	return can && cannot
}

// restoresBlindly reports whether some line to restore by is of a metric that is measured, and
// another is not.
func (c *conformanceCase) restoresBlindly() bool {
	if c.Input == nil {
		return false
	}
	measured, missing := false, false
	for _, metric := range slices.Sorted(maps.Keys(c.Input.RestoreWatermarks)) {
		_, known := c.Input.NodeUsage[metric]
		measured, missing = measured || known, missing || !known
	}
	return measured && missing
}

// leavesThresholdOut reports whether a rule has a threshold of 0, which cannot be told from none.
func (c *conformanceCase) leavesThresholdOut() bool {
	o := c.object()
	if o == nil {
		return false
	}
	for _, r := range o.Spec.Rules {
		if r.AvoidanceThreshold == 0 || r.RestoreThreshold == 0 {
			return true
		}
	}
	return false
}

// stopsTheIdle reports whether some outcome has a task stopped that uses nothing.
func (c *conformanceCase) stopsTheIdle() bool {
	if c.Input == nil || len(c.Accept) == 0 {
		return false
	}
	var evicted []string
	for _, key := range []string{"evictedInOrder", "evictedSet"} {
		if raw, has := c.Accept[0][key]; has && json.Unmarshal(raw, &evicted) != nil {
			return false
		}
	}
	return slices.ContainsFunc(c.Input.Pods, func(p actPod) bool {
		return p.CPUUsageCores == 0 && p.MemUsageBytes == 0 && slices.Contains(evicted, p.Name)
	})
}

// capsAboveMachine reports whether a quota is to be restored to more processors than there are.
func (c *conformanceCase) capsAboveMachine() bool {
	if c.Input == nil || len(c.Input.RestoreWatermarks) == 0 || len(c.Accept) == 0 {
		return false
	}
	for _, key := range []string{"quotaUpdates", "quotaUpdatesSet"} {
		var updates []quotaUpdate
		if raw, has := c.Accept[0][key]; has && json.Unmarshal(raw, &updates) != nil {
			return false
		}
		for _, u := range updates {
			if float64(u.QuotaUs) > 100_000*c.Input.NodeUsage["cpu_core_numbers"] {
				return true
			}
		}
	}
	return false
}
