package rest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	instance = "c63c4f68-decf-4285-a5dc-97d0663d8030"
	batch    = "/ws/v1/events/batch"
)

// history is a Source and its Events: records of which the first has the id low.
type history struct {
	settings map[string]string // of the events
	low      uint64
	records  []plimsoll.Event
	failed   error
	corrupt  error
}

func (h *history) Events(_ context.Context, c plimsoll.Consistency) (rest.State, error) {
	state := rest.State{Events: h, InstanceUUID: instance, Version: plimsoll.Version{Epoch: 3, Revision: 1042}}
	if h.settings != nil {
		settings, tables := plimsoll.DefaultEventSettings(), replica.NewTables()
		if err := settings.Set(h.settings); err != nil {
			return state, err //nolint:wrapcheck // of a test
		}
		record := wire.Mutation{Kind: wire.KindEventSettings, Value: wire.AppendEventSettings(nil, &settings)}
		if err := tables.Apply(&wire.Batch{Epoch: 3, Revision: 1042, Mutations: []wire.Mutation{record}}); err != nil {
			return state, err //nolint:wrapcheck // of a test
		}
		state.Records = tables.Snapshot()
	}
	if !c.Strict() {
		state.Age = 1500 * time.Microsecond
	}
	return state, h.failed
}

func (h *history) Follow(context.Context) (<-chan struct{}, func() rest.State, func()) {
	return make(chan struct{}), func() rest.State {
		return rest.State{Events: h, InstanceUUID: instance, Version: plimsoll.Version{Epoch: 3, Revision: 1042}}
	}, func() {}
}

func (h *history) Next() uint64 { return h.low + uint64(len(h.records)) }

func (h *history) Range() (low, high uint64, ok bool) {
	if len(h.records) == 0 {
		return 0, 0, false
	}
	return h.low, h.low + uint64(len(h.records)) - 1, true
}

func (h *history) Batch(start, count uint64, yield func(uint64, *plimsoll.Event) bool) error {
	for i := range h.records {
		if id := h.low + uint64(i); id >= start && id-start < count && !yield(id, &h.records[i]) {
			break
		}
	}
	return h.corrupt
}

// nodeAdded is the start of YuniKorn's own trace: the facts of the events that follow the
// registration of a node.
func nodeAdded() []plimsoll.Event {
	return []plimsoll.Event{
		{Type: plimsoll.EventQueue, Object: "root", Time: 1795188772531784241, Change: plimsoll.ChangeAdd},
		{Type: plimsoll.EventQueue, Object: "root.a", Time: 1795188772531807795, Change: plimsoll.ChangeAdd},
		{
			Type: plimsoll.EventNode, Object: "n1", Message: "schedulable: true", Time: 1795188772938398870,
			Change: plimsoll.ChangeSet, Detail: plimsoll.NodeSchedulable,
		},
		{
			Type: plimsoll.EventNode, Object: "n1", Message: "Node added to the scheduler", Time: 1795188772938443101,
			Change: plimsoll.ChangeAdd, Resources: plimsoll.Resources{plimsoll.Memory: 100, plimsoll.CPU: 100},
		},
		{
			Type: plimsoll.EventApp, Object: "app1", Reference: "k1", Time: 1795188773000000000,
			Change:    plimsoll.ChangeAdd,
			Detail:    plimsoll.AppAlloc,
			Resources: plimsoll.Resources{plimsoll.Memory: 10, plimsoll.CPU: 1, "nvidia.com/gpu": 0},
		},
	}
}

// The records are as YuniKorn's server wrote them for these facts. The last one follows from the
// same rules.
var nodeAddedJSON = []string{
	`{"type":4,"objectID":"root","timestampNano":1795188772531784241,"eventChangeType":2,"resource":{}}`,
	`{"type":4,"objectID":"root.a","timestampNano":1795188772531807795,"eventChangeType":2,"resource":{}}`,
	`{"type":3,"objectID":"n1","message":"schedulable: true","timestampNano":1795188772938398870,"eventChangeType":1,"eventChangeDetail":302,"resource":{}}`,
	`{"type":3,"objectID":"n1","message":"Node added to the scheduler","timestampNano":1795188772938443101,"eventChangeType":2,"resource":{"resources":{"memory":{"value":100},"vcore":{"value":100}}}}`,
	`{"type":2,"objectID":"app1","timestampNano":1795188773000000000,"eventChangeType":2,"eventChangeDetail":200,"referenceID":"k1","resource":{"resources":{"memory":{"value":10},"nvidia.com/gpu":{},"vcore":{"value":1}}}}`,
}

func answerJSON(low, high string, records ...string) string {
	list := "null"
	if len(records) > 0 {
		list = "[" + strings.Join(records, ",") + "]"
	}
	return `{"InstanceUUID":"` + instance + `","LowestID":` + low + `,"HighestID":` + high + `,"EventRecords":` + list +
		"}\n"
}

func get(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Design, "REST": count is the number of events, start is the id of the first. An unknown id gives
// no events, only the range.
func TestBatchAnswersAsYuniKorn(t *testing.T) {
	full, wrapped := &history{records: nodeAdded()}, &history{low: 1100, records: nodeAdded()}
	tests := []struct {
		name   string
		events *history
		query  string
		want   string
	}{
		{"an empty ring", &history{}, "", answerJSON("0", "0")},
		{"an empty ring with a start", &history{}, "?start=0", answerJSON("0", "0")},
		{"only id 0", &history{records: nodeAdded()[:1]}, "", answerJSON("0", "0", nodeAddedJSON[0])},
		{"everything", full, "", answerJSON("0", "4", nodeAddedJSON...)},
		{"everything after the ring wrapped", wrapped, "", answerJSON("1100", "1104", nodeAddedJSON...)},
		{"the first two", full, "?count=2", answerJSON("0", "4", nodeAddedJSON[:2]...)},
		{"the first two after the ring wrapped", wrapped, "?count=2", answerJSON("1100", "1104", nodeAddedJSON[:2]...)},
		{"one from the middle", full, "?count=1&start=1", answerJSON("0", "4", nodeAddedJSON[1])},
		{"the last", wrapped, "?start=1104", answerJSON("1100", "1104", nodeAddedJSON[4])},
		{"the next poll", wrapped, "?start=1105", answerJSON("1100", "1104")},
		{"below the range", wrapped, "?start=1099", answerJSON("1100", "1104")},
		{"far beyond", full, "?start=18446744073709551615", answerJSON("0", "4")},
		{"a count larger than what is there", full, "?count=1000000", answerJSON("0", "4", nodeAddedJSON...)},
		{"the largest count", full, "?count=18446744073709551615", answerJSON("0", "4", nodeAddedJSON...)},
		{
			"count and start as large as can be", full, "?count=18446744073709551615&start=3",
			answerJSON("0", "4", nodeAddedJSON[3:]...),
		},
		{
			"empty parameters count as not given", wrapped, "?count=&start=",
			answerJSON("1100", "1104", nodeAddedJSON...),
		},
		{"unknown parameters are ignored", full, "?count=1&verbose=yes", answerJSON("0", "4", nodeAddedJSON[0])},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := get(rest.New(rest.Config{}, test.events), http.MethodGet, batch+test.query)
			if w.Code != http.StatusOK || w.Body.String() != test.want {
				t.Errorf("got %d\n%s\nwant 200\n%s", w.Code, w.Body, test.want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json; charset=UTF-8" {
				t.Errorf("Content-Type is %q", got)
			}
		})
	}
}

// "The maximum number of events to return in one REST response", which is a setting of the cluster.
// A change of it holds for the next request.
func TestBatchIsBoundedByResponseSize(t *testing.T) {
	events := &history{records: nodeAdded(), settings: map[string]string{"RESTResponseSize": "1"}}
	h := rest.New(rest.Config{}, events)
	one := answerJSON("0", "4", nodeAddedJSON[:1]...)
	if got := get(h, http.MethodGet, batch).Body.String(); got != one {
		t.Errorf("got %s, want %s", got, one)
	}
	events.settings["RESTResponseSize"] = "2"
	want := answerJSON("0", "4", nodeAddedJSON[:2]...)
	for _, query := range []string{"", "?count=2", "?count=3", "?count=18446744073709551615"} {
		if got := get(h, http.MethodGet, batch+query).Body.String(); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func TestBadInputIsRefusedWithTheParameterAndTheFix(t *testing.T) {
	tests := []struct{ query, field, fix string }{
		{"?cuont=1", "cuont: is no parameter", `did you mean "count"?`},
		{"?Start=1", "Start: is no parameter", `did you mean "start"?`},
		{"?count=0", "count: is 0", "1 or more"},
		{"?count=-1", `count: "-1" is not a whole number`, "1 or more"},
		{"?count=x", `count: "x" is not a whole number`, "count=100"},
		{"?count=1.5", `count: "1.5" is not a whole number`, "count=100"},
		{"?count=+1", `count: " 1" is not a whole number`, "count=100"},
		{"?count=99999999999999999999", `count: "99999999999999999999" is too large`, "18446744073709551615"},
		{"?consistency=fresh", `consistency: "fresh" is not known`, "at-least:3.1042"},
		{"?consistancy=strict", "consistancy: is no parameter", `did you mean "consistency"?`},
		{"?start=abc", `start: "abc" is not a whole number`, "0 or more"},
		{"?start=-1", `start: "-1" is not a whole number`, "start=100"},
		{"?start=18446744073709551616", `start: "18446744073709551616" is too large`, "18446744073709551615"},
		{"?count=10&start=0x10", `start: "0x10" is not a whole number`, "start=100"},
		{"?count=%zz", "query: cannot be taken apart", "?count=100&start=0"},
		{"?count=1;start=2", "query: cannot be taken apart", "?count=100&start=0"},
		{"?count=" + strings.Repeat("9", 5000), "count: \"9999", "…"},
	}
	for _, test := range tests {
		t.Run(test.query[:min(len(test.query), 40)], func(t *testing.T) {
			w := get(rest.New(rest.Config{}, &history{records: nodeAdded()}), http.MethodGet, batch+test.query)
			message := errorOf(t, w, http.StatusBadRequest)
			if !strings.HasPrefix(message, test.field) || !strings.Contains(message, test.fix) || len(message) > 200 {
				t.Errorf("message is %q; want it to begin with %q and to say %q", message, test.field, test.fix)
			}
		})
	}
}

// errorOf checks that an answer is an error in YuniKorn's shape and returns its message.
func errorOf(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("the error %q is not JSON: %v", w.Body, err)
	}
	message, _ := body["message"].(string)
	if w.Code != status || body["status_code"] != float64(status) || message == "" ||
		body["description"] != message || len(body) != 3 {
		t.Errorf("got %d %s; want status %d and YuniKorn's three keys", w.Code, w.Body, status)
	}
	return message
}

func TestWrongPathsAndMethodsAreAnsweredInJSON(t *testing.T) {
	h := rest.New(rest.Config{}, &history{})
	for _, path := range []string{
		"/ws/v1/", "/ws/v1/events", "/ws/v1/events/batch/", "/ws/v1/cluster", "/ws/v1/events/stream/",
	} {
		if message := errorOf(t, get(h, http.MethodGet, path), http.StatusNotFound); !strings.Contains(message, batch) {
			t.Errorf("%s: %q does not say what there is", path, message)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "BREW"} {
		w := get(h, method, batch)
		if message := errorOf(
			t, w, http.StatusMethodNotAllowed,
		); !strings.Contains(message, "use GET") || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %q, Allow %q", method, message, w.Header().Get("Allow"))
		}
	}
	if w := get(h, http.MethodHead, batch); w.Code != http.StatusOK {
		t.Errorf("HEAD gives %d", w.Code)
	}
}

func TestErrorsOfTheSourceByTheirCode(t *testing.T) {
	tests := []struct {
		name    string
		events  *history
		status  int
		message string
		fault   bool
	}{
		{"no leader", &history{failed: plimsoll.Errorf(
			plimsoll.CodeUnavailable, "no leader; try again",
		)}, 503, "no leader; try again", false},
		{"too slow", &history{failed: plimsoll.Errorf(
			plimsoll.CodeDeadline, "no answer in 3s; try again",
		)}, 504, "no answer in 3s; try again", false},
		{
			"too many", &history{failed: plimsoll.Errorf(plimsoll.CodeExhausted, "too many requests")}, 429,
			"too many requests", false,
		},
		{"a fault of ours", &history{
			failed: errors.New("secret"),
		}, 500, "the answer could not be made; the gateway's log says why", true},
		{
			"a corrupt chunk", &history{records: nodeAdded(), corrupt: errors.New("secret")}, 500,
			"the answer could not be made; the gateway's log says why", true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var fault error
			h := rest.New(rest.Config{Fault: func(err error) { fault = err }}, test.events)
			w := get(h, http.MethodGet, batch)
			if message := errorOf(t, w, test.status); message != test.message {
				t.Errorf("message is %q, want %q", message, test.message)
			}
			if (fault != nil) != test.fault {
				t.Errorf("the fault told is %v", fault)
			}
			if retry := w.Header().Get("Retry-After"); (retry == "1") != (test.status == 503 || test.status == 429) {
				t.Errorf("Retry-After is %q", retry)
			}
		})
	}
}

func TestLongAnswersAreCompressedIfThatIsAccepted(t *testing.T) {
	long := &history{}
	for range 10 {
		long.records = append(long.records, nodeAdded()...)
	}
	h := rest.New(rest.Config{}, long)
	plain := get(h, http.MethodGet, batch)
	for _, accept := range []string{"gzip", "deflate, gzip;q=0.5", "GZIP", "br, gzip ; q=1"} {
		w := get(h, http.MethodGet, batch, "Accept-Encoding", accept)
		z, err := gzip.NewReader(w.Body)
		if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("%q: %v, Content-Encoding %q", accept, err, w.Header().Get("Content-Encoding"))
		}
		if body, err := io.ReadAll(z); err != nil || !bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("%q: the answer differs from the plain one (%v)", accept, err)
		}
	}
	for _, accept := range []string{"", "br", "gzip;q=0", "gzip; q=0.000"} {
		if w := get(
			h, http.MethodGet, batch, "Accept-Encoding", accept,
		); !bytes.Equal(w.Body.Bytes(), plain.Body.Bytes()) {
			t.Errorf("%q: the answer is not plain", accept)
		}
	}
	if w := get(
		h, http.MethodGet, batch+"?count=1", "Accept-Encoding", "gzip",
	); w.Header().Get("Content-Encoding") != "" {
		t.Error("a short answer is compressed")
	}
}

func TestAGivenUpRequestGetsNoHalfAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	rest.New(rest.Config{}, &history{records: nodeAdded()}).ServeHTTP(
		w, httptest.NewRequestWithContext(ctx, http.MethodGet, batch, nil),
	)
	errorOf(t, w, 499)
}

// The body is YuniKorn's, so the state of the answer stands in its headers.
func TestTheHeadersOfAnAnswerNameItsState(t *testing.T) {
	for query, age := range map[string]string{
		"": "0", "?consistency=strict": "0", "?consistency=eventual": "0.0015", "?consistency=at-least:3.7": "0.0015",
	} {
		header := get(rest.New(rest.Config{}, &history{}), http.MethodGet, batch+query).Header()
		got := [3]string{header.Get("Plimsoll-Epoch"), header.Get("Plimsoll-Revision"), header.Get("Plimsoll-Age")}
		if got != [3]string{"3", "1042", age} {
			t.Errorf("%s: %q, want an age of %s", query, got, age)
		}
	}
}
