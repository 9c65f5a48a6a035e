package rest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
)

// A large answer goes out in pieces. It has the length that its head says, and the lines of its
// events, whatever was rendered before. In a single piece it is the same.
func TestALargeAnswerIsTheSameInPieces(t *testing.T) {
	long := &history{low: 100}
	for i := range 5000 {
		long.records = append(long.records, plimsoll.Event{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Object: fmt.Sprint("n", i), Time: int64(1 + i/7),
			Message: strings.Repeat("x", i%200),
		})
	}
	h := rest.New(rest.Config{}, long)
	for _, span := range []struct{ start, count int }{
		{4000, 3}, {4100, 5}, {100, 1}, {300, 2500}, {100, 5000}, {5099, 1}, {1279, 2}, {1280, 600},
	} {
		target := fmt.Sprintf("%s?start=%d&count=%d", batch, span.start, span.count)
		plain := get(h, http.MethodGet, target)
		if length := plain.Header().Get("Content-Length"); length != strconv.Itoa(plain.Body.Len()) {
			t.Errorf("%s: Content-Length is %s of %d", target, length, plain.Body.Len())
		}
		var said struct {
			EventRecords []struct{ ObjectID, Message string }
		}
		if err := json.Unmarshal(plain.Body.Bytes(), &said); err != nil || len(said.EventRecords) != span.count {
			t.Fatalf("%s: %d records, %v", target, len(said.EventRecords), err)
		}
		for i, record := range said.EventRecords {
			want := &long.records[span.start-100+i]
			if record.ObjectID != want.Object || record.Message != want.Message {
				t.Fatalf("%s: record %d is %+v, not %+v", target, i, record, *want)
			}
		}
		packed := get(h, http.MethodGet, target, "Accept-Encoding", "gzip")
		if packed.Header().Get("Content-Encoding") == "" { // it is short
			continue
		}
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := io.ReadAll(z); err != nil || !bytes.Equal(whole, plain.Body.Bytes()) {
			t.Errorf("%s: the answer in one piece differs (%v)", target, err)
		}
	}
}
