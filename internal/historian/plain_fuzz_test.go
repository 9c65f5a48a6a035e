package historian_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/historian"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// Each query of each path is answered, or refused by the one who asked: with a status that says so,
// and in JSON that names what is wrong. None is a fault of the historian.
func FuzzPlainQuestions(f *testing.F) {
	paths := []string{"timeline", "usage", "jobs", "at", "status"}
	for _, seed := range []string{
		"", "job=a&since=5", "by=owner&by=label:team&since=2026-11-23T10:00:00Z", "by=day&time_zone=Europe/Berlin",
		"labels=team=docs&limit=-1", "cursor=1.zz", "cursor=zzzzzzzzzzzzzzzzzzz.0", "at=1&part=tasks&after=a",
		"since=9223372036854775807", "until=-9223372036854775808", "since=0001-01-01T00:00:00Z", "a=b;c", "%zz",
		"limit=99999999999999999999", "life=3&task=a.b.0", "task=..", "queue=root..x", "limit=1&limit=2", "after=0",
		strings.Repeat("h", 2000), "queue=" + strings.Repeat("r", 2000), "cursor=" + strings.Repeat("c", 2000),
		"job=" + strings.Repeat("%94", 800),
	} {
		for i := range paths {
			f.Add(byte(i), seed)
		}
	}
	kept := &memory{jobs: map[int64]history.Job{}}
	var e ring.Encoder
	event := queueEvent()
	e.Append(&event)
	if err := kept.Write(context.Background(), &history.Batch{
		Instance: "first", Count: 1, From: event.Time, To: event.Time, Data: e.Finish(nil),
		Objects: []history.Object{{Kind: history.KindQueue, ID: event.Object}},
	}); err != nil {
		f.Fatal(err)
	}
	var fault error
	h, err := historian.New(historian.Config{
		Source: newSource(), Reader: kept, Now: time.Now,
		Open:   func(context.Context) (history.Writer, error) { return kept, nil },
		Events: historian.Events{Fault: func(_ string, err error) { fault = err }},
	})
	if err != nil {
		f.Fatal(err)
	}
	statuses := []int{
		http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusTooManyRequests,
		http.StatusConflict, // a page behind one that is not known any more
	}
	f.Fuzz(func(t *testing.T, path byte, query string) {
		name := historian.PlainRoot + paths[int(path)%len(paths)]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, name, nil)
		r.URL.RawQuery = query
		w := httptest.NewRecorder()
		fault = nil
		h.Plain().ServeHTTP(w, r)
		var body struct{ Code, Message string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || fault != nil {
			t.Fatalf("%s?%s: %d %s, %v, %v", r.URL.Path, query, w.Code, w.Body, err, fault)
		}
		if !slices.Contains(statuses, w.Code) || w.Code != http.StatusOK && (body.Code == "" || body.Message == "") ||
			w.Code != http.StatusOK && len(body.Message) > 4000 {
			t.Fatalf("%s?%s: %d %s", r.URL.Path, query, w.Code, w.Body)
		}
	})
}
