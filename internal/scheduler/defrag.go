package scheduler

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	// MaxMoves is how many moves one plan may have.
	MaxMoves = 1000
	// maxMovables bounds how many tasks one plan looks at, about.
	maxMovables = 500_000
)

// MovePlan is a plan of moves.
type MovePlan struct {
	placement.Plan
	Refusal string // why a task finds no node as it is now, if room for it is asked for and no node would have it
}

// PlanMoves plans moves of tasks: to make room for a task of a group of a job, or, without a job,
// to empty as many nodes as possible. It changes nothing.
func (v *View) PlanMoves(spec *plimsoll.JobSpec, group string, limit int) (*MovePlan, error) {
	if limit < 1 || limit > MaxMoves {
		return nil, plimsoll.Invalid(
			"limit", "is %d; give the most moves that the plan may have, from 1 to %d", limit, MaxMoves,
		)
	}
	goal := placement.Goal{Chain: v.chain, Limit: limit, Looks: maxTrialLooks, Seed: v.seed, Now: v.now}
	index := -1
	if spec != nil {
		if err := v.size(spec); err != nil {
			return nil, err
		}
		var err error
		if index, err = wantedGroup(spec, group); err != nil {
			return nil, err
		}
		if none := whyNone(v.names, spec.Groups[index].Resources); none != "" {
			return &MovePlan{Refusal: none}, nil
		}
		ask := v.names.Ask(spec, &spec.Groups[index], 1)
		goal.For = &ask.Request
	}
	movables, all, release := v.movables(maxMovables)
	defer release()
	plan, err := v.placer().PlanMoves(movables, goal)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	plan.Stopped = plan.Stopped || !all
	out := &MovePlan{Plan: plan}
	if spec != nil && plan.Room == "" {
		trial, err := v.Try(spec, spec.Groups[index].Name, 1)
		if err != nil {
			return nil, err
		}
		out.Refusal = trial.Groups[0].Summary
	}
	return out, nil
}

// wantedGroup returns the index of the group of a job that is named, or of its only one.
func wantedGroup(spec *plimsoll.JobSpec, group string) (int, error) {
	names := make([]string, len(spec.Groups))
	for i := range spec.Groups {
		names[i] = spec.Groups[i].Name
	}
	switch i := slices.Index(names, group); {
	case i >= 0:
		return i, nil
	case group != "":
		return -1, plimsoll.Invalid("group", "the job has no group %q; it has %s", group, strings.Join(names, ", "))
	case len(names) != 1:
		return -1, plimsoll.Invalid(
			"group", "is missing; the job has %s: name the one whose task needs room", strings.Join(names, ", "),
		)
	}
	return 0, nil
}
