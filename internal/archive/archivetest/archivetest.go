// Package archivetest is the conformance suite of package archive, and an archive in memory.
//
// An implementation's test calls Run with a function that makes a fresh Harness:
//
//	archivetest.Run(t, func(t *testing.T) archivetest.Harness {
//		m := archivetest.NewMemory()
//		return archivetest.Harness{
//			Writer: func() (archive.Writer, error) { return m, nil },
//			Reader: func() (archive.Reader, error) { return m, nil },
//			Crash:  func() error { return nil },
//		}
//	})
//
// The random cases print their seed. The suite starts nothing of its own but for one case that
// reads beside a writer, and keeps nothing. Each implementation tests by itself a disk that is
// full, and a file that is damaged.
package archivetest

import (
	"context"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// Harness is one archive under test. It begins empty.
type Harness struct {
	// Writer opens the archive for writing. Several may be open: epochs decide whose calls count.
	Writer func() (archive.Writer, error)
	// Reader opens it for reading. It may be called before the first Writer.
	Reader func() (archive.Reader, error)
	// Crash ends the process that has the archive open, as far as the archive can tell: what is
	// open is not used any more, and only what is durable is there afterwards.
	Crash func() error
	// Partial says that the archive does so little work for one answer that it ends before its
	// limit also when the archive is small.
	Partial bool
}

// tester is the part of testing.T that cases use. With another one, a test of the suite sees which
// case fails for a faulty archive.
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
var cases = slices.Concat(writeCases, leaderCases, readCases, randomCases)

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

// must ends the case if a call that is not under test fails.
func must[T any](t tester, doing string) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
		return value
	}
}

// archiveOf is an archive with a writer that leads with epoch 1, and a reader.
type archiveOf struct {
	h Harness
	w archive.Writer
	r archive.Reader
}

func open(t tester, h Harness) *archiveOf {
	t.Helper()
	a := &archiveOf{h: h}
	a.openAgain(t)
	return a
}

// openAgain opens the archive after a crash, or for the first time.
func (a *archiveOf) openAgain(t tester) archive.Mark {
	t.Helper()
	a.w = must[archive.Writer](t, "open for writing")(a.h.Writer())
	a.r = must[archive.Reader](t, "open for reading")(a.h.Reader())
	return must[archive.Mark](t, "fence")(a.w.Fence(t.Context(), 1))
}

func (a *archiveOf) close(t tester) {
	t.Helper()
	for range 2 { // a second call does nothing
		if err := a.r.Close(); err != nil {
			t.Fatalf("close the reader: %v", err)
		}
		if err := a.w.Close(); err != nil {
			t.Fatalf("close the writer: %v", err)
		}
	}
}

func (a *archiveOf) write(t tester, jobs ...archive.Job) archive.Mark {
	t.Helper()
	return must[archive.Mark](t, "write")(a.w.Write(t.Context(), 1, jobs, nil))
}

func (a *archiveOf) mark(t tester) archive.Mark {
	t.Helper()
	return must[archive.Mark](t, "mark")(a.r.Mark(t.Context()))
}

// jobs returns all jobs of a query.
func (a *archiveOf) jobs(t tester, q archive.JobQuery) []archive.Stored {
	t.Helper()
	return allPages(t, "jobs", q.Limit, q.MaxBytes, q.After,
		func(after archive.Position) (archive.Page[archive.Stored, archive.Position], error) {
			q.After = after
			return a.r.Jobs(t.Context(), q)
		},
		func(s *archive.Stored) int { return s.Bytes() + len(s.Spec) + len(s.Status) })
}

// tasks returns all tasks of a query.
func (a *archiveOf) tasks(t tester, q archive.TaskQuery) []archive.Task {
	t.Helper()
	return allPages(t, "tasks", q.Limit, q.MaxBytes, q.After,
		func(after archive.TaskPosition) (archive.Page[archive.Task, archive.TaskPosition], error) {
			q.After = after
			return a.r.Tasks(t.Context(), q)
		}, (*archive.Task).Bytes)
}

// allPages reads a list from a position on, page by page, and compares each page with its bounds.
func allPages[T any, P comparable](
	t tester, noun string, limit, most int, after P, read func(after P) (archive.Page[T, P], error), bytes func(*T) int,
) []T {
	t.Helper()
	var found []T
	for pages := 0; ; pages++ {
		page := must[archive.Page[T, P]](t, "list "+noun)(read(after))
		found = append(found, page.Items...)
		size := 0
		for i := range page.Items {
			size += bytes(&page.Items[i])
		}
		switch {
		case limit > 0 && len(page.Items) > limit:
			t.Fatalf("a page has %d %s, and the limit is %d", len(page.Items), noun, limit)
		case most > 0 && size > most && len(page.Items) > 1:
			t.Fatalf("a page of %d %s has %d bytes, and the limit is %d", len(page.Items), noun, size, most)
		case len(page.Damaged) > 0:
			t.Fatalf("jobs %v are damaged", page.Damaged)
		case !page.More:
			return found
		case page.Next == after || pages > 100_000:
			t.Fatalf("a page with more does not move on from %v", page.Next)
		}
		after = page.Next
	}
}

// refused ends the case unless an error has a code.
func refused(t tester, doing string, code plimsoll.Code, err error) {
	t.Helper()
	if err == nil || plimsoll.CodeOf(err) != code {
		t.Fatalf("%s gives %v, not %v", doing, err, code)
	}
}
