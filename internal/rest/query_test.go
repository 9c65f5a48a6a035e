package rest

import (
	"encoding/json"
	"net/url"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// Every query is refused with a named field, or understood within its bounds.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{
		"", "count=1&start=2", "count=-1", "start=abc", "count=99999999999999999999", "a=b;c", "%zz", "count=&count=3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw)
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || len(err.Error()) > 400 {
				t.Fatalf("%q: %v is not a short CodeInvalid error", raw, err)
			}
			return
		}
		if q.count < 1 {
			t.Fatalf("%q: count is %d", raw, q.count)
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q was taken, and cannot be taken apart: %v", raw, err)
		}
		if n, err := strconv.ParseUint(
			values.Get("start"), 10, 64,
		); q.hasStart != (err == nil) || q.start != n && err == nil {
			t.Fatalf("%q: start is %d, %v", raw, q.start, q.hasStart)
		}
	})
}

// The record of every event is one JSON object with the same content.
func FuzzAppendRecord(f *testing.F) {
	f.Add("app1", "k1", "message", int64(1), "cpu", int64(5))
	f.Add("<&>", "\xff\x00", "tab\t \"quoted\" \\ \u2028", int64(-1), "vcore", int64(-7))
	f.Fuzz(func(t *testing.T, object, reference, message string, at int64, name string, amount int64) {
		ev := plimsoll.Event{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Detail: plimsoll.AppAlloc, Time: at,
			Object: object, Reference: reference, Message: message,
			Resources: plimsoll.Resources{name: amount, plimsoll.CPU: 1},
		}
		var got struct {
			Type          int    `json:"type"`
			ObjectID      string `json:"objectID"`
			ReferenceID   string `json:"referenceID"`
			Message       string `json:"message"`
			TimestampNano int64  `json:"timestampNano"`
			Resource      struct {
				Resources map[string]struct {
					Value int64 `json:"value"`
				} `json:"resources"`
			} `json:"resource"`
		}
		if err := json.Unmarshal(new(recordRenderer).append(nil, &ev, nil), &got); err != nil {
			t.Fatalf("%s: %v", new(recordRenderer).append(nil, &ev, nil), err)
		}
		for _, text := range [][2]string{{object, got.ObjectID}, {reference, got.ReferenceID}, {message, got.Message}} {
			if want := []rune(text[0]); string(want) != text[1] {
				t.Errorf("%q became %q", text[0], text[1])
			}
		}
		if got.TimestampNano != at || got.Type != 2 ||
			got.Resource.Resources["vcore"].Value != ev.Resources[plimsoll.CPU] {
			t.Errorf("%s does not say what %+v does", new(recordRenderer).append(nil, &ev, nil), ev)
		}
	})
}
