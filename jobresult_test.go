package plimsoll_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// The result of a job follows from its state and from whether it was killed.
func TestTheResultOfAJobIsInTheWordsOfTasks(t *testing.T) {
	for _, c := range []struct {
		state  plimsoll.JobState
		killed bool
		want   string
	}{
		{plimsoll.JobRunning, false, ""},
		{plimsoll.JobFailing, true, ""},
		{plimsoll.JobFailed, false, "failed"},
		{plimsoll.JobFailed, true, "killed"},
		{plimsoll.JobCompleted, false, "succeeded"},
		{plimsoll.JobCompleted, true, "succeeded"},
		{plimsoll.JobRejected, false, "failed"},
	} {
		s := plimsoll.JobStatus{State: c.state, Killed: c.killed}
		if got := s.Result().String(); got != c.want {
			t.Errorf("%v, killed %t: %q, want %q", c.state, c.killed, got, c.want)
		}
	}
}
