package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

func running(task string, attempt int32) plimsoll.TaskReport {
	return plimsoll.TaskReport{Task: task, Attempt: attempt, State: plimsoll.TaskRunning, At: 5}
}

func finished(task string, attempt, code int32) plimsoll.TaskReport {
	return plimsoll.TaskReport{
		Task: task, Attempt: attempt, State: plimsoll.TaskFinished, Result: plimsoll.ResultFailed, ExitCode: code,
		Message: "it failed", At: 9,
	}
}

func mustOpenOutbox(t *testing.T, dir string) (*outbox, int64) {
	t.Helper()
	o, dropped, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.close() }) // some tests close it themselves
	return o, dropped
}

func mustFlush(t *testing.T, o *outbox) {
	t.Helper()
	if err := o.flush(); err != nil {
		t.Fatal(err)
	}
}

func TestOutboxKeepsTwoReportsAnAttempt(t *testing.T) {
	o, _ := mustOpenOutbox(t, t.TempDir())
	starting := running("j.g.0", 1)
	starting.State = plimsoll.TaskStarting
	o.add(starting)
	o.add(running("j.g.0", 1)) // replaces starting
	o.add(finished("j.g.1", 1, 1))
	o.add(running("j.g.1", 1)) // late: it has ended
	o.add(finished("j.g.0", 1, 3))
	want := []plimsoll.TaskReport{running("j.g.0", 1), finished("j.g.0", 1, 3), finished("j.g.1", 1, 1)}
	if diff := cmp.Diff(want, o.next(10)); diff != "" {
		t.Errorf("what waits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:2], o.next(2)); diff != "" {
		t.Errorf("a part of what waits (-want +got):\n%s", diff)
	}
}

func TestOutboxAcknowledgementOfAnOlderReportKeepsTheNewerOne(t *testing.T) {
	o, _ := mustOpenOutbox(t, t.TempDir())
	o.add(running("j.g.0", 1))
	sent := o.next(10)
	newer := running("j.g.0", 1)
	newer.At = 6
	o.add(newer)
	o.ack(sent)
	if diff := cmp.Diff([]plimsoll.TaskReport{newer}, o.next(10)); diff != "" {
		t.Errorf("what waits (-want +got):\n%s", diff)
	}
}

func TestOutboxSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	o, _ := mustOpenOutbox(t, dir)
	for i := range int32(4) {
		o.add(running("j.g.0", i+1))
		o.add(finished("j.g.0", i+1, i))
	}
	mustFlush(t, o)
	o.ack(o.next(3))
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	again, dropped := mustOpenOutbox(t, dir)
	if diff := cmp.Diff(o.next(10), again.next(10)); diff != "" || dropped != 0 {
		t.Errorf("dropped %d bytes; after a restart (-before +after):\n%s", dropped, diff)
	}
	if got := len(again.ends()); got != 3 {
		t.Errorf("%d ends wait, want 3", got)
	}
}

// TestOutboxCutAtEveryByte crashes at every point of writing. Exactly the whole records are read
// back.
func TestOutboxCutAtEveryByte(t *testing.T) {
	var file []byte
	var ends []int // end of each record
	var after [][]plimsoll.TaskReport
	model, _ := mustOpenOutbox(t, t.TempDir())
	add := func(kind byte, r plimsoll.TaskReport) {
		file = appendRecord(file, kind, &r)
		if kind == recordAck {
			model.ack([]plimsoll.TaskReport{r})
		} else {
			model.add(r)
		}
		ends, after = append(ends, len(file)), append(after, model.next(100))
	}
	add(recordReport, running("j.g.0", 1))
	add(recordReport, finished("j.g.1", 2, 7))
	add(recordAck, running("j.g.0", 1))
	add(recordReport, finished("j.g.0", 1, 1))
	add(recordAck, finished("j.g.1", 2, 7))
	for cut := range len(file) + 1 {
		dir := t.TempDir()
		write(t, filepath.Join(dir, fmt.Sprintf("%016x.log", 7)), file[:cut])
		o, dropped := mustOpenOutbox(t, dir)
		var want []plimsoll.TaskReport
		whole := 0
		for i, end := range ends {
			if end <= cut {
				want, whole = after[i], end
			}
		}
		if diff := cmp.Diff(want, o.next(100)); diff != "" || dropped != int64(cut-whole) {
			t.Fatalf(
				"cut at %d of %d: dropped %d, want %d; what waits (-want +got):\n%s", cut, len(file), dropped,
				cut-whole, diff,
			)
		}
	}
}

func TestOutboxStopsAtADamagedByte(t *testing.T) {
	r := finished("j.g.0", 1, 1)
	one := appendRecord(nil, recordReport, &r)
	for i := range one {
		damaged := append(bytes.Clone(one), one...)
		damaged[len(one)+i] ^= 0x40
		dir := t.TempDir()
		write(t, filepath.Join(dir, fmt.Sprintf("%016x.log", 1)), damaged)
		o, dropped := mustOpenOutbox(t, dir)
		if len(o.next(10)) != 1 || dropped != int64(len(one)) {
			t.Fatalf("byte %d damaged: %d wait, %d bytes dropped", i, len(o.next(10)), dropped)
		}
	}
}

func TestOutboxFileStaysSmall(t *testing.T) {
	dir := t.TempDir()
	o, _ := mustOpenOutbox(t, dir)
	pending := running("j.g.9", 1)
	o.add(pending)
	text := strings.Repeat("x", 3000)
	for i := range int32(1000) {
		r := finished("j.g.0", i+1, 1)
		r.Message = text
		o.add(r)
		o.ack([]plimsoll.TaskReport{r})
		if i%10 == 9 {
			mustFlush(t, o)
		}
	}
	numbers, err := o.files()
	if err != nil || len(numbers) != 1 {
		t.Fatalf("files %v, error %v; want one file", numbers, err)
	}
	info, err := os.Stat(o.path(numbers[0]))
	if err != nil || info.Size() > rotateBytes {
		t.Errorf("size %d, error %v", info.Size(), err)
	}
	again, _ := mustOpenOutbox(t, dir)
	if diff := cmp.Diff([]plimsoll.TaskReport{pending}, again.next(10)); diff != "" {
		t.Errorf("what waits (-want +got):\n%s", diff)
	}
}

func TestOutboxWritesAnewAfterAnError(t *testing.T) {
	dir := t.TempDir()
	o, _ := mustOpenOutbox(t, dir)
	if err := o.io.file.Close(); err != nil { // as if the disk had failed
		t.Fatal(err)
	}
	r := finished("j.g.0", 1, 1)
	o.add(r)
	if err := o.flush(); err == nil {
		t.Fatal("a write to a closed file went well")
	}
	if len(o.next(10)) != 1 {
		t.Fatal("the report is gone from memory")
	}
	if err := o.flush(); err == nil {
		t.Log("the old file was closed twice without an error")
	}
	again, _ := mustOpenOutbox(t, dir)
	if diff := cmp.Diff([]plimsoll.TaskReport{r}, again.next(10)); diff != "" {
		t.Errorf("on the disk (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkOutbox(b *testing.B) {
	o, _, err := openOutbox(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		o.add(running("j.g.0", int32(i)))
		o.add(finished("j.g.0", int32(i), 1))
		if i%100 == 99 {
			if err := o.flush(); err != nil {
				b.Fatal(err)
			}
			o.ack(o.next(200))
		}
	}
	if err := o.close(); err != nil {
		b.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
