package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func (a action) String() string {
	word := map[actionKind]string{actionStart: "start", actionStop: "stop", actionEnd: "end"}[a.kind]
	s := fmt.Sprintf("%s %d", word, a.attempt)
	if a.result != plimsoll.ResultNone {
		s += " " + a.result.String()
	}
	return s
}

func wanted(attempt int32, state plimsoll.TaskState) *want {
	return &want{attempt: attempt, state: state}
}

// TestReconcile is the whole rule: the wanted state of a task, its attempts here, and the actions.
func TestReconcile(t *testing.T) {
	evicted := &want{attempt: 1, state: plimsoll.TaskStopping, result: plimsoll.ResultEvicted}
	tests := []struct {
		name   string
		wanted *want
		held   []have
		do     string
	}{
		{"nothing wanted, nothing here", nil, nil, ""},
		{"a bound task is started", wanted(1, plimsoll.TaskBound), nil, "start 1"},
		{
			"one that was being started when the agent died, and left no trace, is started",
			wanted(1, plimsoll.TaskStarting), nil, "start 1",
		},
		{
			"a start under way is left alone", wanted(1, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseStarting}},
			"",
		},
		{
			"what runs as wanted is left alone", wanted(1, plimsoll.TaskRunning),
			[]have{{attempt: 1, phase: phaseLive}},
			"",
		},
		{
			"what runs and is taken for bound is left alone", wanted(1, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseLive}},
			"",
		},
		{
			"what has ended is never started again", wanted(1, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseEnded}},
			"",
		},
		{"what has ended needs no stop", wanted(1, plimsoll.TaskStopping), []have{{attempt: 1, phase: phaseEnded}}, ""},
		{
			"a directory without a process is lost", wanted(1, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseOrphan}},
			"end 1 lost",
		},
		{
			"so it is if the task is taken for running", wanted(1, plimsoll.TaskRunning),
			[]have{{attempt: 1, phase: phaseOrphan}},
			"end 1 lost",
		},
		{"a running task that left no trace is lost", wanted(1, plimsoll.TaskRunning), nil, "end 1 lost"},
		{
			"an old directory that nobody asks about is left to the janitor", nil,
			[]have{{attempt: 1, phase: phaseOrphan}},
			"",
		},
		{
			"a stop is passed on", wanted(1, plimsoll.TaskStopping),
			[]have{{attempt: 1, phase: phaseLive}},
			"stop 1 killed",
		},
		{"with its cause", evicted, []have{{attempt: 1, phase: phaseLive}}, "stop 1 evicted"},
		{"but once", wanted(1, plimsoll.TaskStopping), []have{{attempt: 1, phase: phaseLive, stopping: true}}, ""},
		{"and after the start", wanted(1, plimsoll.TaskStopping), []have{{attempt: 1, phase: phaseStarting}}, ""},
		{"what is to stop before it began has ended", wanted(1, plimsoll.TaskStopping), nil, "end 1 killed"},
		{"with the cause of the stop", evicted, nil, "end 1 evicted"},
		{"what is no longer assigned is stopped", nil, []have{{attempt: 1, phase: phaseLive}}, "stop 1 killed"},
		{
			"an older attempt is stopped before the new one starts", wanted(2, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseLive}},
			"stop 1 killed",
		},
		{
			"the new one waits for it", wanted(2, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseLive, stopping: true}},
			"",
		},
		{
			"also while it is being started", wanted(2, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseStarting}},
			"",
		},
		{
			"and starts when it has ended", wanted(2, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseEnded}},
			"start 2",
		},
		{"or is gone", wanted(2, plimsoll.TaskBound), []have{{attempt: 1, phase: phaseOrphan}}, "start 2"},
		{
			"a newer attempt than the one wanted: the list is old", wanted(1, plimsoll.TaskBound),
			[]have{{attempt: 2, phase: phaseLive}},
			"",
		},
		{"even if the list says stop", wanted(1, plimsoll.TaskStopping), []have{{attempt: 2, phase: phaseLive}}, ""},
		{
			"what was reported as ended must not live", wanted(1, plimsoll.TaskRunning),
			[]have{{attempt: 1, phase: phaseLive, void: true}},
			"stop 1 killed",
		},
		{
			"each attempt is looked at", wanted(3, plimsoll.TaskBound),
			[]have{{attempt: 1, phase: phaseLive}, {attempt: 2, phase: phaseLive}},
			"stop 1 killed, stop 2 killed",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var do []string
			for _, a := range reconcile(test.wanted, test.held) {
				do = append(do, a.String())
			}
			if got := strings.Join(do, ", "); got != test.do {
				t.Errorf("did %q, want %q", got, test.do)
			}
		})
	}
}
