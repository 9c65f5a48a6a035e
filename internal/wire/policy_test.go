package wire

import (
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
)

func drawPolicy(t *rapid.T) plimsoll.Policy {
	p := plimsoll.Policy{Revision: drawUint64(t, "revision")}
	switch rapid.IntRange(0, 3).Draw(t, "kind of policy") {
	case 1:
		p.Action = drawAction(t)
	case 2:
		p.TaskQOS = &plimsoll.TaskQOS{
			Name: drawText(t, "name"), Labels: drawTexts(t, "labels"), Match: drawSlice(t, "match", drawRequirement),
			Allowed: drawSlice(t, "allowed", func(t *rapid.T) string { return drawText(t, "action") }),
			Prefer:  rapid.Bool().Draw(t, "prefer"), Avoid: rapid.Bool().Draw(t, "avoid"),
			Critical: rapid.Bool().Draw(t, "critical"),
		}
	case 3:
		p.NodeQOS = &plimsoll.NodeQOS{
			Name: drawText(t, "name"), Selector: drawTexts(t, "selector"), Rules: drawSlice(t, "rules", drawRule),
			Options: drawQOSOptions(t),
		}
	}
	return p
}

func drawAction(t *rapid.T) *plimsoll.Action {
	a := &plimsoll.Action{
		Name: drawText(t, "name"), CoolDown: time.Duration(drawInt64(t, "cool down")),
		DisableScheduling: rapid.Bool().Draw(t, "disable"),
	}
	if rapid.Bool().Draw(t, "has weight") {
		a.Weight = &plimsoll.WeightAction{Idle: rapid.Bool().Draw(t, "idle"), Shares: drawInt64(t, "shares")}
	}
	if rapid.Bool().Draw(t, "has throttle") {
		a.Throttle = &plimsoll.ThrottleAction{MinRatio: drawInt32(t, "min ratio"), Step: drawInt32(t, "step")}
	}
	if rapid.Bool().Draw(t, "has freeze") {
		a.Freeze = &plimsoll.FreezeAction{For: time.Duration(drawInt64(t, "for"))}
	}
	if rapid.Bool().Draw(t, "has evict") {
		a.Evict = &plimsoll.EvictAction{
			Grace: time.Duration(drawInt64(t, "grace")), Reclaim: rapid.Bool().Draw(t, "reclaim"),
		}
	}
	return a
}

func drawRequirement(t *rapid.T) plimsoll.Requirement {
	return plimsoll.Requirement{
		Scope: drawEnum[plimsoll.Scope](t, "scope"), Not: rapid.Bool().Draw(t, "not"),
		Values: drawSlice(t, "values", func(t *rapid.T) string { return drawText(t, "value") }),
	}
}

func drawQOSOptions(t *rapid.T) plimsoll.QOSOptions {
	duration := func(name string) time.Duration { return time.Duration(drawInt64(t, name)) }
	return plimsoll.QOSOptions{
		Excess: drawInt32(t, "excess"), Overdue: duration("overdue"), Stale: duration("stale"),
		Backoff: duration("backoff"),
		Settle:  duration("settle"), Lag: duration("lag"),
	}
}

func drawRule(t *rapid.T) plimsoll.Rule {
	return plimsoll.Rule{
		Name: drawText(t, "name"), Metric: drawText(t, "metric"), Waterline: drawText(t, "waterline"),
		Release:      drawText(t, "release"),
		TriggerAfter: drawInt32(t, "trigger after"), RestoreAfter: drawInt32(t, "restore after"),
		Action:  drawText(t, "action"),
		Preview: rapid.Bool().Draw(t, "preview"), Hold: rapid.Bool().Draw(t, "hold"),
	}
}

func drawNodeReport(t *rapid.T) plimsoll.NodeReport {
	return plimsoll.NodeReport{
		SchedulingDisabled: rapid.Bool().Draw(t, "disabled"), SchedulingReason: drawText(t, "reason"),
		Extended: drawResources(t, "extended"),
		Events: drawSlice(t, "events", func(t *rapid.T) plimsoll.QOSEvent {
			return plimsoll.QOSEvent{
				At: drawInt64(t, "at"), Kind: drawEnum[plimsoll.QOSEventKind](t, "kind"), Task: drawText(t, "task"),
				Attempt: drawInt32(t, "attempt"), Rule: drawText(t, "rule"), Metric: drawText(t, "metric"),
				Before: drawText(t, "before"),
				After:  drawText(t, "after"), Message: drawText(t, "message"),
			}
		}),
	}
}
