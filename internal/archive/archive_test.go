package archive_test

import (
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// The records of a job are read from the store for each walk. A job that is measured has its
// numbers and bytes, and its records are not walked for them again.
func TestMeasuredJob(t *testing.T) {
	records := []archive.TaskRecord{
		{Key: "a", Result: plimsoll.ResultSucceeded, Value: []byte("12345")},
		{Key: "bc", Result: plimsoll.ResultFailed, Value: []byte("6")},
		{Key: "d", Result: plimsoll.ResultLost},
	}
	walks := 0
	job := archive.Job{
		Head: archive.Head{ID: "job", Tasks: 100, Failed: 100}, Spec: []byte("spec"),
		Records: func(yield func(archive.TaskRecord) bool) {
			walks++
			slices.Values(records)(yield)
		},
	}
	before := job.Bytes()
	for range 2 { // measured again, nothing is counted twice
		job.Measure()
		if job.Tasks != 3 || job.Failed != 2 {
			t.Errorf("%d tasks, of which %d failed", job.Tasks, job.Failed)
		}
	}
	for range 3 {
		if after := job.Bytes(); after != before {
			t.Errorf("%d bytes, and %d before", after, before)
		}
	}
	if walks != 3 {
		t.Errorf("the records were walked %d times, not for Bytes and twice for Measure", walks)
	}
}
