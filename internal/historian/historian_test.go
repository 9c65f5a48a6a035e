package historian_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/historian"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// cell is a historian of a source, with the callbacks it made.
type cell struct {
	t      *testing.T
	from   *source
	kept   *memory
	h      *historian.Historian
	told   []string
	name   string // under which it registers; empty: that of the history, and it tells nothing of it
	shown  *prometheus.Registry
	cancel context.CancelFunc
	ended  chan error
}

func newCell(t *testing.T) *cell {
	t.Helper()
	return &cell{t: t, from: newSource(), kept: &memory{jobs: map[int64]history.Job{}}}
}

// start starts the historian on the history that it has kept.
func (c *cell) start() {
	c.t.Helper()
	c.shown = prometheus.NewRegistry()
	h, err := historian.New(historian.Config{
		Source: c.from, Reader: c.kept, Now: time.Now, Name: c.name, Metric: c.shown,
		Open: func(context.Context) (history.Writer, error) { return c.kept, nil },
		Events: historian.Events{
			Trouble: func(err error) { c.tell("trouble %v", err) },
			Registered: func(err error) {
				if c.name != "" {
					c.tell("registered %v", err)
				}
			},
			Waiting: func(err error) { c.tell("waiting %v", err) },
			Gap: func(g history.Gap) {
				c.tell("gap %s %d-%d %s", g.Instance, g.First, g.Next, g.Reason)
			},
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	c.h, c.cancel, c.ended = h, cancel, make(chan error, 1)
	go func() { c.ended <- h.Run(ctx) }()
}

// stop stops the historian as SIGTERM does.
func (c *cell) stop() {
	c.t.Helper()
	c.cancel()
	if err := <-c.ended; err != nil {
		c.t.Errorf("it ended with %v", err)
	}
}

// get asks a question, and returns the answer as a text.
func (c *cell) get(path string) string {
	c.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, historian.PlainRoot+path, nil)
	c.h.Plain().ServeHTTP(w, r)
	return strings.ReplaceAll(strings.TrimSpace(w.Body.String()), " ", "")
}

// gauge returns the value of a metric.
func (c *cell) gauge(name string) float64 {
	c.t.Helper()
	families, err := c.shown.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	c.t.Fatalf("there is no metric %s", name)
	return 0
}

// ids returns the ids that the history has, in its order.
func (c *cell) ids() (ids []string) {
	c.t.Helper()
	page, err := c.kept.Timeline(c.t.Context(), history.TimelineQuery{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range page.Rows {
		ids = append(ids, fmt.Sprintf("%s%d", r.Instance, r.ID))
	}
	return ids
}

func (c *cell) has(want ...string) {
	c.t.Helper()
	synctest.Wait()
	if got := fmt.Sprint(c.ids()); got != fmt.Sprint(want) {
		c.t.Errorf("the history has %s; want %s", got, want)
	}
}

func (c *cell) tell(format string, args ...any) {
	c.kept.Lock()
	defer c.kept.Unlock()
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

func (c *cell) said(want ...string) {
	c.t.Helper()
	c.kept.Lock()
	defer c.kept.Unlock()
	if fmt.Sprint(c.told) != fmt.Sprint(want) {
		c.t.Errorf("it told %q; want %q", c.told, want)
	}
	c.told = nil
}

// The events of a store with one node and one job.
func queueEvent() plimsoll.Event {
	return plimsoll.Event{
		Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Time: time.Now().UnixNano(), Object: plimsoll.RootQueue,
	}
}

func jobEvent(id string, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, task string) plimsoll.Event {
	e := plimsoll.Event{
		Type: plimsoll.EventApp, Change: change, Detail: detail, Time: time.Now().UnixNano(),
		Object: id, Reference: task,
	}
	if task != "" {
		e.Resources = plimsoll.Resources{plimsoll.CPU: 2000}
	}
	return e
}

// takenIn is the event that takes in a job now.
func takenIn(id, owner string) plimsoll.Event {
	e, is := jobEvent(id, plimsoll.ChangeAdd, plimsoll.DetailNone, ""), submitted(id, owner)
	e.Head = &plimsoll.JobHead{UID: is.Status.UID, Owner: owner, Labels: is.Spec.Labels}
	return e
}

// submitted is a job of the source's lists that is taken in now.
func submitted(id, owner string) plimsoll.Job {
	now := time.Now().UnixNano()
	return plimsoll.Job{
		Spec: plimsoll.JobSpec{
			ID: id, Owner: owner, Labels: map[string]string{"team": "docs"},
			Groups: []plimsoll.GroupSpec{{Name: "main", Count: 1, Resources: plimsoll.Resources{plimsoll.CPU: 2000}}},
		},
		Status: plimsoll.JobStatus{
			ID: id, Owner: owner, Queue: "root.default", Submitted: now + 7, UID: plimsoll.MakeUID(now, 1),
			State: plimsoll.JobNew,
		},
	}
}

const settle = time.Second // in which what has happened is written

func TestEventsAreKeptOnceThroughStops(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(settle)
		c.has("first0")
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		synctest.Wait()
		c.stop()
		c.has("first0", "first1") // what had arrived is written at the end
		c.from.tell(jobEvent("a", plimsoll.ChangeSet, plimsoll.AppAccepted, ""))
		c.start()
		time.Sleep(settle)
		c.has("first0", "first1", "first2")
		c.stop()
		c.said()
	})
}

func TestWhatTheGatewayNoLongerHasIsAGap(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent(), jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		c.start()
		time.Sleep(settle)
		c.stop()
		c.from.jobs = []plimsoll.Job{submitted("b", "ann")}
		c.from.queues = []plimsoll.QueueStatus{{Path: plimsoll.RootQueue}, {Path: "root.default", Leaf: true}}
		c.from.change(func() {
			c.from.lowest = 7
			c.from.events = []plimsoll.Event{jobEvent("b", plimsoll.ChangeSet, plimsoll.AppAccepted, "")}
		})
		c.start()
		time.Sleep(settle)
		c.has("first0", "first1", "first7")
		c.said("gap first 2-7 The gateway no longer had the events.")
		if got := c.get("jobs"); !strings.Contains(got, `"id":"b"`) || !strings.Contains(got, `"owner":"ann"`) {
			t.Errorf("the jobs behind the gap are %s", got)
		}
		if got := c.get("status"); !strings.Contains(got, `"gaps":[{"instanceUuid":"first","first":"2","next":"7"`) {
			t.Errorf("the status is %s", got)
		}
		c.stop()
	})
}

func TestALateHistoryBeginsWithTheLists(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.jobs = []plimsoll.Job{submitted("old", "ann")}
		time.Sleep(time.Hour)
		c.from.lowest = 5
		c.from.events = []plimsoll.Event{jobEvent("old", plimsoll.ChangeSet, plimsoll.AppAccepted, "")}
		c.start()
		time.Sleep(settle)
		c.has("first5")
		c.said("gap first 0-5 The history began later.")
		if got := c.get("at?part=jobs"); !strings.Contains(got, `"id":"old","owner":"ann"`) {
			t.Errorf("the cluster is %s", got)
		}
		c.stop()
	})
}

func TestAnotherStoreIsAnotherInstance(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent(), jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		c.start()
		time.Sleep(settle)
		c.from.change(func() {
			c.from.instance, c.from.events = "second", []plimsoll.Event{queueEvent()}
		})
		time.Sleep(settle)
		c.has("first0", "first1", "second0")
		c.said("gap second 0-0 The store was replaced by a new one.")
		if got := c.get("at?part=jobs"); strings.Contains(got, `"id":"a"`) {
			t.Errorf("a job of the old store is there: %s", got)
		}
		c.stop()
	})
}

func TestAFullDiskStopsTheHistoryAndLosesNothing(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(settle)
		full := plimsoll.Errorf(plimsoll.CodeExhausted, "its disk is full")
		c.kept.breaks(full)
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		time.Sleep(time.Minute)
		c.has("first0")
		if got := c.get("status"); !strings.Contains(got, `"trouble":"itsdiskisfull"`) {
			t.Errorf("the status is %s", got)
		}
		c.kept.breaks(nil)
		c.from.tell(jobEvent("a", plimsoll.ChangeSet, plimsoll.AppAccepted, ""))
		time.Sleep(time.Minute)
		c.has("first0", "first1", "first2")
		c.said("trouble "+full.Error(), "trouble <nil>")
		c.stop()
	})
}

// A write that fails while the historian stops is not made again with the same fold: its usage
// would be counted twice.
func TestAWriteThatFailsAtAStopIsMadeByTheNextStart(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		c.from.tell(takenIn("a", "ann"))
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.AppRequest, "a.main.0"))
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.AppAlloc, "a.main.0"))
		time.Sleep(settle)
		c.kept.breaksOnce(plimsoll.Errorf(plimsoll.CodeUnavailable, "it cannot be written"), c.cancel)
		time.Sleep(time.Hour)
		c.from.tell(jobEvent("a", plimsoll.ChangeRemove, plimsoll.AllocCancel, "a.main.0"))
		if err := <-c.ended; err == nil {
			t.Error("the failure is not told")
		}
		c.start()
		time.Sleep(settle)
		if got := c.get("usage?by=owner"); !strings.Contains(got, `"unitSeconds":7202000}`) {
			t.Errorf("the usage is %s; want that of an hour and a second", got)
		}
		c.stop()
	})
}

func TestAnAbsentGatewayIsToldOfOnceAndWaitedFor(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.away = plimsoll.Errorf(plimsoll.CodeUnavailable, "nobody listens")
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(time.Hour)
		c.said("waiting nobody listens")
		c.from.change(func() { c.from.away = nil })
		time.Sleep(time.Minute)
		c.has("first0")
		c.stop()
	})
}

func TestTheFirstEventOfAJobTellsWhoseItIs(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent(), takenIn("a", "ann"), plimsoll.Event{
			Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Detail: plimsoll.QueueApp, Object: "root.default",
			Reference: "a", Time: time.Now().UnixNano(),
		})
		c.from.tell(jobEvent("b", plimsoll.ChangeAdd, plimsoll.DetailNone, "")) // as an older version tells it
		c.start()
		time.Sleep(settle)
		want := `"owner":"ann","queue":"root.default","labels":{"team":"docs"}`
		if got := c.get("jobs?id=a"); !strings.Contains(got, want) {
			t.Errorf("job a is %s", got)
		}
		if got := c.get("jobs?id=b"); strings.Contains(got, "owner") {
			t.Errorf("job b is %s, and nobody told who it is of", got)
		}
		c.stop()
	})
}

func TestUsageIsThatOfTheEvents(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		c.from.tell(takenIn("a", "ann"))
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.AppRequest, "a.main.0"))
		time.Sleep(10 * time.Second)
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.AppAlloc, "a.main.0"))
		time.Sleep(time.Hour)
		end := jobEvent("a", plimsoll.ChangeRemove, plimsoll.AllocCancel, "a.main.0")
		c.from.tell(end)
		time.Sleep(settle)
		want := `"keys":["ann"],"used":[{"name":"cpu","unitSeconds":7200000}],` +
			`"waits":{"count":"1","mean":"10000000000","p50":"10000000000","p95":"10000000000","longest":"10000000000"}`
		if got := c.get("usage?by=owner"); !strings.Contains(got, want) {
			t.Errorf("the usage is %s; want %s", got, want)
		}
		c.stop()
	})
}

func TestQuestionsThatCannotBeAnsweredNameTheField(t *testing.T) {
	c := newCell(t)
	h, err := historian.New(historian.Config{
		Source: c.from, Reader: c.kept, Now: time.Now,
		Open: func(context.Context) (history.Writer, error) { return c.kept, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.h = h
	for path, want := range map[string]string{
		"nothing":                                  "there are at, jobs, status, timeline and usage",
		"usage?by=ownr":                            `did you mean "owner"?`,
		"usage?by=label:":                          "names no label",
		"usage?by=owner&by=owner":                  "has owner twice",
		"usage?bye=owner":                          `did you mean "by"?`,
		"usage?since=yesterday":                    "is neither a time nor a number",
		"usage?since=1600-01-01T00:00:00Z":         "is not between 1970 and 2262",
		"timeline?until=2300-01-01T00:00:00Z":      "is not between 1970 and 2262",
		"usage?since=-5":                           "is before 1970",
		"usage?since=5&until=5":                    "is not behind since",
		"usage?time_zone=Nowhere":                  "write for example Europe/Berlin",
		"usage?labels=a":                           "is not key=value",
		"usage?limit=-1":                           "is negative",
		"usage?limit=1&limit=2":                    "give it once",
		"timeline?job=a&node=b":                    "give at most one of them",
		"timeline?life=3":                          "beside a job or task",
		"timeline?task=a":                          "write JOB.GROUP.INDEX",
		"timeline?cursor=1":                        "give next of the answer before",
		"timeline?limit=x":                         "is no number",
		"at?part=pods":                             "is none of jobs, nodes, queues and tasks",
		"at?at=2200-01-01T00:00:00Z":               "is in the future",
		"at?at=2020-01-01T00:00:00Z":               "does not know that time",
		"timeline?queue=root..x":                   "queue",
		"jobs?cursor=zz.zz&id=%zz":                 "cannot be read",
		"timeline?job=" + strings.Repeat("a", 300): "job",
	} {
		want = strings.ReplaceAll(want, " ", "")
		got := strings.ReplaceAll(c.get(path), `\"`, `"`)
		if !strings.Contains(got, want) || !strings.HasPrefix(got, `{"code":`) {
			t.Errorf("%s: %s; want %s", path, got, want)
		}
	}
}

// A page of the cluster at an instant goes on where the one before ended.
func TestTheClusterAtAnInstantComesInPages(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		var want []string
		for i := range 10 {
			id := fmt.Sprintf("j%d", i)
			want = append(want, id)
			c.from.tell(jobEvent(id, plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		}
		time.Sleep(settle)
		var got []string
		at := time.Now().UnixNano()
		for after := ""; ; {
			page := c.get(fmt.Sprintf("at?at=%d&part=jobs&limit=3&after=%s", at, after))
			for _, id := range want {
				if strings.Contains(page, `"id":"`+id+`"`) {
					got = append(got, id)
				}
			}
			_, next, more := strings.Cut(page, `"next":"`)
			if !more {
				break
			}
			after, _, _ = strings.Cut(next, `"`)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the pages have %v; want %v", got, want)
		}
		c.stop()
	})
}
