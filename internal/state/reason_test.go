package state

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestTheReasonOfAFailureSaysTheExitCodeOnce(t *testing.T) {
	for _, test := range []struct {
		task Task
		want string
	}{
		{Task{Result: plimsoll.ResultFailed, ExitCode: 7, Message: "exit code 7"}, "a.b.0 failed with exit code 7"},
		{Task{Result: plimsoll.ResultFailed, ExitCode: 7}, "a.b.0 failed with exit code 7"},
		{
			Task{
				Result: plimsoll.ResultFailed, ExitCode: 7,
				Message: "exit code 7; a process was killed for lack of memory",
			},
			"a.b.0 failed with exit code 7; a process was killed for lack of memory",
		},
		{
			Task{Result: plimsoll.ResultFailed, ExitCode: 7, Message: "exit code 70"},
			"a.b.0 failed with exit code 7: exit code 70",
		},
		{
			Task{Result: plimsoll.ResultFailed, ExitCode: 143, Message: "signal 15 (terminated)"},
			"a.b.0 failed with exit code 143: signal 15 (terminated)",
		},
		{
			Task{Result: plimsoll.ResultTimedOut, ExitCode: 143, Message: "it ran too long"},
			"a.b.0 timed out: it ran too long",
		},
	} {
		test.task.ID = "a.b.0"
		if got := firstFailure(&test.task); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
