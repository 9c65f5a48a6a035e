// Package historytest is the conformance suite of package history, and a history in memory.
//
// An implementation's test calls Run with a function that makes a fresh Harness:
//
//	historytest.Run(t, func(t *testing.T) historytest.Harness {
//		m := historytest.NewMemory()
//		return historytest.Harness{
//			Writer: func() (history.Writer, error) { return m, nil },
//			Reader: func() (history.Reader, error) { return m, nil },
//			Crash:  func() error { return nil },
//		}
//	})
//
// The random cases print their seed, and compare with the history in memory. The suite starts
// nothing of its own, and keeps nothing. Each implementation tests by itself a disk that is full, a
// file that is damaged, and which folds it drops. At may begin with an older fold than the newest.
package historytest

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// Harness is one history under test. It begins empty.
type Harness struct {
	// Writer opens the history for writing, when no other writer is open.
	Writer func() (history.Writer, error)
	// Reader opens it for reading. It may be called before the first Writer.
	Reader func() (history.Reader, error)
	// Crash ends the process that has the history open, as far as the history can tell: what is
	// open is not used any more, and only what is durable is there afterwards.
	Crash func() error
}

// tester is the part of testing.T that cases use. With another one, a test of the suite sees which
// case fails for a faulty history.
type tester interface {
	Helper()
	Fatalf(format string, values ...any)
	Context() context.Context
}

type testCase struct {
	name string
	run  func(t tester, h Harness, seed uint64)
}

// cases has every case of the suite with the sentence that it tests.
var cases = slices.Concat(writeCases, readCases, randomCases)

// Run runs the suite. It fails if it ran no case, as with a -run pattern that matches none.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	ran := 0
	seed := testrun.Seed(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ran++
			c.run(t, newHarness(t), seed)
		})
	}
	if ran == 0 {
		t.Fatal("the conformance suite ran no case")
	}
}

// historyOf is a history with a writer and a reader, beside a model of it.
type historyOf struct {
	h     Harness
	w     history.Writer
	r     history.Reader
	model *Memory
}

func open(t tester, h Harness) *historyOf {
	t.Helper()
	o := &historyOf{h: h, model: NewMemory()}
	o.openAgain(t)
	return o
}

// openAgain opens the history after a crash, or for the first time.
func (o *historyOf) openAgain(t tester) {
	t.Helper()
	var err error
	if o.w, err = o.h.Writer(); err == nil {
		o.r, err = o.h.Reader()
	}
	if err != nil {
		t.Fatalf("open the history: %v", err)
	}
}

// write writes a batch to the history and the model.
func (o *historyOf) write(t tester, b *history.Batch) {
	t.Helper()
	if err := o.w.Write(t.Context(), b); err != nil {
		t.Fatalf("write %s from %d on: %v", b.Instance, b.First, err)
	}
	if err := o.model.Write(t.Context(), b); err != nil {
		t.Fatalf("the model: %v", err)
	}
}

// same compares what the history and the model hold as a whole.
func (o *historyOf) same(t tester) {
	t.Helper()
	got, err := o.r.Status(t.Context())
	want, _ := o.model.Status(t.Context()) // it never fails
	if err != nil || (got.Bytes <= 0) && got.Events > 0 {
		t.Fatalf("the status is %+v, %v", got, err)
	}
	got.Bytes, want.Bytes = 0, 0
	differ(t, "the status", got, want)
	at, err := o.w.Position(t.Context())
	if err != nil || at != want.Position {
		t.Fatalf("the position is %+v, %v, not %+v", at, err, want.Position)
	}
	o.sameTimeline(t, history.TimelineQuery{})
	o.sameResume(t)
}

// differ ends the case if two answers are not the same.
func differ(t tester, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) { // much faster than the next
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s differs (-want +got):\n%s", what, diff)
	}
}

// sameCode ends the case if two errors have not the same code. It reports whether there is one.
func sameCode(t tester, what any, got, want error) bool {
	t.Helper()
	if (got == nil) != (want == nil) || want != nil && plimsoll.CodeOf(got) != plimsoll.CodeOf(want) {
		t.Fatalf("%+v fails with %v, not with %v", what, got, want)
	}
	return want != nil
}

func refused(t tester, doing string, code plimsoll.Code, err error) {
	t.Helper()
	if err == nil || plimsoll.CodeOf(err) != code {
		t.Fatalf("%s gives %v, not %v", doing, err, code)
	}
}

// pages reads a list to its end, and compares each page with its bounds.
func pages[T any](
	t tester, limit int, bytes func(*T) int, read func(after history.Cursor) (history.Page[T], error),
) (rows []T, err error) {
	t.Helper()
	if limit == 0 {
		limit = history.MaxPage
	}
	for after, count := (history.Cursor{}), 0; ; count++ {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		size := 0
		for i := range page.Rows {
			size += bytes(&page.Rows[i])
		}
		if len(page.Rows) > limit || size > history.MaxPageBytes && len(page.Rows) > 1 {
			t.Fatalf("a page has %d rows with %d bytes, and the limit is %d", len(page.Rows), size, limit)
		}
		rows = append(rows, page.Rows...)
		if page.Next == (history.Cursor{}) {
			return rows, nil
		}
		if page.Next == after || count > 1_000_000 {
			t.Fatalf("a page does not move on from %+v", after)
		}
		after = page.Next
	}
}

func (o *historyOf) timeline(t tester, r history.Reader, q history.TimelineQuery) ([]history.Record, error) {
	t.Helper()
	return pages(t, q.Limit, (*history.Record).Bytes, func(after history.Cursor) (history.Page[history.Record], error) {
		q.After = after
		return r.Timeline(t.Context(), q)
	})
}

func (o *historyOf) sameTimeline(t tester, q history.TimelineQuery) {
	t.Helper()
	got, failed := o.timeline(t, o.r, q)
	want, err := o.timeline(t, o.model, q)
	if !sameCode(t, q, failed, err) {
		differ(t, "the timeline of "+q.Object.ID+" "+q.Task, got, want)
	}
}

func (o *historyOf) sameJobs(t tester, q history.JobQuery) {
	t.Helper()
	read := func(r history.Reader) ([]history.Job, error) {
		return pages(t, q.Limit, (*history.Job).Bytes, func(after history.Cursor) (history.Page[history.Job], error) {
			q.After = after
			return r.Jobs(t.Context(), q)
		})
	}
	got, failed := read(o.r)
	want, err := read(o.model)
	if !sameCode(t, q, failed, err) {
		differ(t, "the list of jobs", got, want)
	}
}

func (o *historyOf) sameUsage(t tester, q history.UsageQuery) {
	t.Helper()
	got, more, failed := o.r.Usage(t.Context(), q)
	want, wantMore, err := o.model.Usage(t.Context(), q)
	if !sameCode(t, q, failed, err) {
		differ(t, "the usage", got, want)
		differ(t, "that there is more usage", more, wantMore)
	}
}

// replayed collects what a replay gives.
func replayed(t tester, replay func(fn func(history.Events) error) error) (all []history.Events) {
	t.Helper()
	if err := replay(func(e history.Events) error {
		all = append(all, e)
		return nil
	}); err != nil {
		t.Fatalf("replay: %v", err)
	}
	return all
}

func (o *historyOf) sameAt(t tester, at int64) {
	t.Helper()
	fold, replay, failed := o.r.At(t.Context(), at)
	wantFold, wantReplay, err := o.model.At(t.Context(), at)
	if sameCode(t, at, failed, err) {
		return
	}
	if !bytes.Equal(fold, wantFold) {
		wantReplay = o.model.replayFrom(fold, at)
	}
	if wantReplay == nil {
		t.Fatalf("the fold at %d is %.80q, and the newest one is %.80q", at, fold, wantFold)
	}
	differ(t, "the replay", replayed(t, replay), replayed(t, wantReplay))
}

func (o *historyOf) sameResume(t tester) {
	t.Helper()
	fold, behind, replay, failed := o.w.Resume(t.Context())
	wantFold, wantBehind, wantReplay, err := o.model.Resume(t.Context())
	if !sameCode(t, "Resume", failed, err) {
		differ(t, "the fold to resume with", fold, wantFold)
		differ(t, "its position", behind, wantBehind)
		differ(t, "its replay", replayed(t, replay), replayed(t, wantReplay))
	}
}
