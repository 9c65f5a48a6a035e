package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/memory"
)

// TestManyRequestsOfManyElementsDoNotEndTheProcess sends 8 KB of gzip with 4.19 M empty groups, 32
// times at once; two such requests used to end the process. Each is refused, and the same process
// goes on within its memory limit.
func TestManyRequestsOfManyElementsDoNotEndTheProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, address := s.devOnPort()
	limit, known := memory.Limit()
	if got := metric(t, address, "go_gc_gomemlimit_bytes"); known && uint64(got) != limit/10*9 {
		t.Errorf("Go's memory limit is %.0f, want nine tenths of %d", got, limit)
	}
	groups := bytes.Repeat([]byte{5<<3 | 2, 0}, 4_190_000)
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	for _, part := range [][]byte{binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(groups))), groups} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	authorization := userToken(t, s.data()).Header() // without it the body would not be read
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(
				t.Context(), http.MethodPost, address+"/plimsoll.v1.JobService/SubmitJob",
				bytes.NewReader(body.Bytes()),
			)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/proto")
			r.Header.Set("Content-Encoding", "gzip")
			r.Header.Set("Authorization", authorization)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close() //nolint:errcheck // it was only read
			said, err := io.ReadAll(response.Body)
			code := response.StatusCode
			if err != nil || code != http.StatusBadRequest && code != http.StatusTooManyRequests {
				t.Errorf("answered %d %s (%v)", code, said, err)
			}
		})
	}
	all.Wait()
	if resident := metric(t, address, "process_resident_memory_bytes"); resident > raceFactor<<30 {
		t.Errorf("the process takes %.0f bytes", resident)
	}
	s.works("after") // the same process: nothing starts another
}

// metric reads a value of /metrics.
func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	response, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("/metrics has no %s", name)
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(string(found[1])), 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
