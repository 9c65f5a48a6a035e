package engine_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// While the disk has no room, tasks are placed, reports are applied and jobs are killed. Ended jobs
// expire, which makes room. A submit is refused with the reason until there is room.
func TestWithoutRoomOnTheDiskOnlyWhatGrowsStops(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{})
	b.send(job("a", 1, 1000), job("b", 2, 1000))
	b.settle()
	b.send(&engine.DiskShortage{Why: "no room on /data"})
	late := b.send(job("c", 1, 1000))
	node := b.send(machine("n", 4000))
	b.settle()
	b.wantCode(late, plimsoll.CodeExhausted)
	if err := b.replies[late]; err == nil || err.Error() != "no room on /data" {
		t.Errorf("the submit is refused with %v", err)
	}
	kill := b.send(&engine.KillJob{ID: "b"})
	var report plimsoll.TaskReport
	report.Attempt, report.State, report.Result = 1, plimsoll.TaskFinished, plimsoll.ResultSucceeded
	ends := b.send(
		&engine.ReportTasks{
			Node: "n", Incarnation: 1, Reports: []engine.Report{{Job: "a", Group: "g", TaskReport: report}},
		},
	)
	b.settle()
	for _, id := range []uint64{node, kill, ends} {
		if err := b.reply(id); err != nil {
			t.Error(err)
		}
	}
	if a := b.engine.State().Job("a"); a == nil || a.State != plimsoll.JobCompleted {
		t.Fatalf("a is %+v", a)
	}
	b.now += 2e9
	b.settle()
	if b.engine.State().Job("a") != nil || b.records.specs["a"] != nil {
		t.Error("a job that ended long ago is kept")
	}
	b.send(&engine.DiskShortage{})
	again := b.send(job("c", 1, 1000))
	b.settle()
	if err := b.reply(again); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
