package archivetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// writeCases test that jobs come back as they were written, once and whole.
var writeCases = []testCase{
	{"a new archive has an id and holds nothing", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		mark := a.mark(t)
		if mark.ID == "" || mark.Sequence != 0 || mark.Jobs != 0 || mark.Tasks != 0 || mark.Oldest != 0 {
			t.Fatalf("its mark is %+v", mark)
		}
		holds(t, a, newModel())
		if err := a.w.Check(t.Context()); err != nil {
			t.Fatalf("check: %v", err)
		}
		a.close(t)
	}},
	{"a job comes back as it was, with all that it is found by", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		j := jobWith(archive.Head{
			UID: plimsoll.MakeUID(start, 1<<63), ID: "word.count-1", Owner: "ann@example.org", Queue: "root.team.x",
			Labels: map[string]string{"k": "", "key=with": "a=b", "é": "\x00\xff"},
			State:  plimsoll.JobFailed, Result: plimsoll.ResultOutOfMemory, Finished: start + 7,
		}, "a\x00spec", "", plimsoll.ResultSucceeded, plimsoll.ResultOutOfMemory)
		j.tasks[1].Value = bytes.Repeat([]byte{0, 255}, 100_000)
		a.write(t, j.Job)
		m := newModel()
		m.write(j)
		holds(t, a, m)
	}},
	{"jobs of all sizes come back, with none, one and thousands of tasks", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i, count := range []int{0, 1, 2, 255, 256, 257, 3000} {
			j := plain(i, fmt.Sprint("job", count))
			j = jobWith(j.Head, "", "", slices.Repeat([]plimsoll.TaskResult{plimsoll.ResultSucceeded}, count)...)
			m.write(j)
			a.write(t, j.Job)
		}
		holds(t, a, m)
		if mark := a.mark(t); mark.Jobs != 7 || mark.Tasks != 0+1+2+255+256+257+3000 {
			t.Fatalf("the mark is %+v", mark)
		}
	}},
	{"a Write that is repeated changes nothing, in whole or in part", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		one, two, three := plain(1, "one"), plain(2, "two"), plain(3, "three")
		m.write(one, two)
		before := a.write(t, unwritten(one, two)...)
		if after := a.write(t, unwritten(one, two)...); after != before {
			t.Fatalf("the mark goes from %+v to %+v", before, after)
		}
		other := plain(2, "other") // of the same uid
		m.write(three)
		after := a.write(t, unwritten(other, three, three)...)
		if after.Sequence <= before.Sequence || after.Jobs != 3 {
			t.Fatalf("the mark goes from %+v to %+v", before, after)
		}
		holds(t, a, m)
	}},
	{"a Write with one job that cannot be taken writes none", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		good := plain(1, "good")
		live, nameless, endless := plain(2, "live"), plain(3, "nameless"), plain(4, "endless")
		live.State, nameless.UID, endless.Finished = plimsoll.JobRunning, plimsoll.UID{}, 0
		short, wrong := plain(5, "short"), plain(6, "wrong")
		short.Tasks, wrong.Failed = 2, 1
		long := plain(7, "long")
		long.Tasks = 5000
		long.Records = slices.Values(slices.Repeat(long.tasks, 4999))
		for _, bad := range []*written{live, nameless, endless, short, wrong, long} {
			_, err := a.w.Write(t.Context(), 1, unwritten(good, bad), nil)
			refused(t, "a Write with "+bad.ID, plimsoll.CodeInvalid, err)
			holds(t, a, newModel())
		}
		if mark := a.mark(t); mark.Jobs != 0 || mark.Tasks != 0 || mark.Sequence != 0 {
			t.Fatalf("the mark is %+v", mark)
		}
	}},
	{"a Write beyond its bounds is refused; a large job goes alone", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		var many []archive.Job
		for i := range archive.MaxWriteJobs + 1 {
			many = append(many, plain(i, fmt.Sprint(i)).Job)
		}
		_, err := a.w.Write(t.Context(), 1, many, nil)
		refused(t, "too many jobs", plimsoll.CodeInvalid, err)
		large := jobWith(plain(9000, "large").Head, strings.Repeat("s", archive.MaxWriteBytes), "")
		_, err = a.w.Write(t.Context(), 1, []archive.Job{many[0], large.Job}, nil)
		refused(t, "too many bytes", plimsoll.CodeInvalid, err)
		m := newModel()
		m.write(large)
		a.write(t, large.Job)
		holds(t, a, m)
	}},
	{"attempts come before their job, once, and are read in order", attemptsCase},
	{"what was acknowledged is there after a crash, and the mark with it", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		var last archive.Mark
		for i := range 20 {
			j := plain(i, fmt.Sprint("job", i%3))
			m.write(j)
			last = a.write(t, j.Job)
			if i%5 == 4 {
				if err := h.Crash(); err != nil {
					t.Fatalf("crash: %v", err)
				}
				if mark := a.openAgain(t); mark != last {
					t.Fatalf("the mark was %+v, and is %+v after the crash", last, mark)
				}
				holds(t, a, m)
			}
		}
		if mark := a.mark(t); mark != last {
			t.Fatalf("a reader sees the mark %+v; a writer got %+v", mark, last)
		}
		a.close(t)
		if mark := a.openAgain(t); mark != last {
			t.Fatalf("the mark was %+v, and is %+v after closing", last, mark)
		}
		holds(t, a, m)
	}},
	{"a call whose caller has gone changes nothing, and the next one works", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err := a.w.Write(gone, 1, unwritten(plain(1, "one")), nil)
		refused(t, "Write", plimsoll.CodeCanceled, err)
		_, err = a.r.Jobs(gone, archive.JobQuery{})
		refused(t, "Jobs", plimsoll.CodeCanceled, err)
		_, err = a.r.Mark(gone)
		refused(t, "Mark", plimsoll.CodeCanceled, err)
		refused(t, "Delete", plimsoll.CodeCanceled, a.w.Delete(gone, 1, []plimsoll.UID{{1}}, start))
		refused(t, "Check", plimsoll.CodeCanceled, a.w.Check(gone))
		holds(t, a, newModel())
		m := newModel()
		m.write(plain(1, "one"))
		a.write(t, plain(1, "one").Job)
		holds(t, a, m)
	}},
	{"a reader beside a writer sees whole Writes", wholeWrites},
}

func attemptsCase(t tester, h Harness, _ uint64) {
	a := open(t, h)
	j := plain(1, "job")
	key := j.tasks[0].Key
	chunk := func(first int32) archive.Attempts {
		return archive.Attempts{UID: j.UID, TaskKey: key, First: first, Value: fmt.Appendf(nil, "from %d", first)}
	}
	other := archive.Attempts{UID: j.UID, TaskKey: key + "1", First: 1, Value: []byte("of another task")}
	write := func(jobs []archive.Job, chunks ...archive.Attempts) archive.Mark {
		return must[archive.Mark](t, "write")(a.w.Write(t.Context(), 1, jobs, chunks))
	}
	first := write(nil, chunk(9), other, chunk(1))
	if again := write(nil, chunk(1), chunk(9)); again != first || first.Sequence != 1 {
		t.Fatalf("the mark goes from %+v to %+v", first, again)
	}
	write(unwritten(j), chunk(17), chunk(9))
	read := func(after int32) (firsts []int32) {
		got := must[[]archive.Attempts](t, "attempts")(a.r.Attempts(t.Context(), j.UID, key, after))
		for _, c := range got {
			if c.UID != j.UID || c.TaskKey != key || string(c.Value) != string(chunk(c.First).Value) {
				t.Fatalf("a chunk came back as %+v", c)
			}
			firsts = append(firsts, c.First)
		}
		return firsts
	}
	if all, some := read(0), read(1); !slices.Equal(all, []int32{1, 9, 17}) || !slices.Equal(some, []int32{9, 17}) {
		t.Fatalf("the attempts begin at %v, and behind 1 at %v", all, some)
	}
	if err := a.w.Delete(t.Context(), 1, []plimsoll.UID{j.UID}, start); err != nil {
		t.Fatalf("delete: %v", err)
	}
	write(nil, chunk(25))
	if left := read(0); len(left) > 0 {
		t.Fatalf("attempts of a deleted job begin at %v", left)
	}
}

// wholeWrites reads while jobs are written in pairs: a page never has one of a pair.
func wholeWrites(t tester, h Harness, _ uint64) {
	a := open(t, h)
	failed := make(chan error, 1)
	go func() {
		for i := range 100 {
			pair := unwritten(plain(2*i, "pair"), plain(2*i+1, "pair"))
			if _, err := a.w.Write(t.Context(), 1, pair, nil); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for done := false; !done; {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatalf("write: %v", err)
			}
			done = true
		default:
		}
		page := must[archive.Page[archive.Stored, archive.Position]](t, "list")(
			a.r.Jobs(t.Context(), archive.JobQuery{Owner: "ann"}))
		if len(page.Items)%2 != 0 || page.More {
			t.Fatalf("a page has %d jobs, more: %v", len(page.Items), page.More)
		}
		mark := a.mark(t)
		if mark.Jobs%2 != 0 || int64(len(page.Items)) > mark.Jobs {
			t.Fatalf("the mark is %+v behind a page of %d jobs", mark, len(page.Items))
		}
	}
}

// holds compares all that an archive has with a model.
func holds(t tester, a *archiveOf, m *model) {
	t.Helper()
	found := a.jobs(t, archive.JobQuery{Ascending: true})
	want := m.all()
	if len(found) != len(want) {
		t.Fatalf("there are %d jobs, not %d", len(found), len(want))
	}
	for i, j := range want {
		same(t, &found[i], j)
		one := must[archive.Stored](t, "get by uid")(a.r.Job(t.Context(), "", j.UID))
		same(t, &one, j)
		tasks := a.tasks(t, archive.TaskQuery{UID: j.UID})
		sameTasks(t, tasks, m.tasksOf(&archive.TaskQuery{UID: j.UID}))
	}
	_, err := a.r.Job(t.Context(), "nobody", plimsoll.UID{})
	refused(t, "a job of an id that is not there", plimsoll.CodeNotFound, err)
}

func same(t tester, got *archive.Stored, want *written) {
	t.Helper()
	g, w := got.Head, want.Head
	labels := maps.Equal(g.Labels, w.Labels)
	g.Labels, w.Labels = nil, nil
	if !labels || fmt.Sprintf("%#v", g) != fmt.Sprintf("%#v", w) || !bytes.Equal(got.Spec, want.Spec) ||
		!bytes.Equal(got.Status, want.Status) {
		t.Fatalf("job %s came back as\n%+v\nwas\n%+v", want.UID, got.Head, want.Head)
	}
}

func sameTasks(t tester, got, want []archive.Task) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("there are %d tasks, not %d", len(got), len(want))
	}
	for i := range got {
		g, w := &got[i], &want[i]
		if g.Job != w.Job || g.Key != w.Key || g.State != w.State || g.Result != w.Result ||
			!bytes.Equal(g.Value, w.Value) {
			t.Fatalf("task %d is %q of job %s, not %q of job %s", i, g.Key, g.Job, w.Key, w.Job)
		}
	}
}
