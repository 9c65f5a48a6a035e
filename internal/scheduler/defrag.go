package scheduler

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	// MaxMoves is the largest number of moves in one plan.
	MaxMoves = 1000
	// maxMovables is roughly the largest number of tasks that one plan considers.
	maxMovables = 500_000
)

// MovePlan is a list of moves that would make room.
type MovePlan struct {
	placement.Plan
	// Refusal is set if room for a task was requested: why no node takes that task without moves.
	// It is empty if a node does.
	Refusal string
}

// PlanMoves plans moves of tasks. With a job, they make room for a task of one of its groups;
// without a job, they empty as many nodes as possible. It changes nothing.
func (v *View) PlanMoves(spec *plimsoll.JobSpec, group string, limit int) (*MovePlan, error) {
	if limit < 1 || limit > MaxMoves {
		return nil, plimsoll.Invalid(
			"limit", "is %d; give the most moves that the plan may have, from 1 to %d", limit, MaxMoves,
		)
	}
	goal := placement.Goal{Chain: v.chain, Limit: limit, Looks: maxTrialLooks, Seed: v.seed, Now: v.now}
	index := -1
	if spec != nil {
		if err := v.checkSize(spec); err != nil {
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
		return nil, err //nolint:wrapcheck // the error names the field
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

// wantedGroup returns the index of the named group of a job, or of its only group.
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
