package sqlite

import (
	"bytes"
	"context"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// codecConn returns a connection for errors about values.
func codecConn(t testing.TB) *conn {
	w, err := OpenWriter(context.Background(), filepath.Join(t.TempDir(), "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w.c
}

// full ends the test if a field of a struct is zero: then it is not known whether it is stored.
func full(t *testing.T, v any) {
	t.Helper()
	for i := range reflect.ValueOf(v).NumField() {
		if reflect.ValueOf(v).Field(i).IsZero() {
			t.Fatalf("%T.%s is zero", v, reflect.TypeOf(v).Field(i).Name)
		}
	}
}

func TestEveryFieldIsStored(t *testing.T) {
	c := codecConn(t)
	var job history.Job
	fill.Fill(&job, fill.Options{})
	if got, err := c.decodeJob(job.Life, encodeJob(&job)); err != nil || !reflect.DeepEqual(got, &job) {
		t.Errorf("a job comes back as %+v, %v", got, err)
	}
	var gap history.Gap
	fill.Fill(&gap, fill.Options{})
	if got, err := c.decodeGap(encodeGap(&gap)); err != nil || got != gap {
		t.Errorf("a gap comes back as %+v, %v", got, err)
	}
	var sums history.Sums
	fill.Fill(&sums, fill.Options{})
	if got, ok := decodeSums(encodeSums(&sums), map[string]string{}); !ok || !reflect.DeepEqual(got, sums) {
		t.Errorf("sums come back as %+v, %v", got, ok)
	}
	h := head{
		n: 1, instance: "i", first: 2, count: 3, from: 4, to: 5, low: 6, high: 7, peak: 8, gapped: true, total: 9,
		sum: 10, objects: []int64{-5, 7, 1 << 62}, compressed: true,
	}
	full(t, h)
	if got, err := c.decodeHead(1, h.encode(), true); err != nil || !reflect.DeepEqual(got, &h) {
		t.Errorf("a head comes back as %+v, %v", got, err)
	}
	s := &state{id: "id", instance: "i", next: 1}
	for i, field := range s.numbers() {
		*field = int64(i + 2)
	}
	full(t, *s)
	if err := c.writeState(s); err != nil {
		t.Fatal(err)
	}
	got, err := c.readState()
	if err != nil {
		t.Fatal(err)
	}
	if got.id = s.id; !reflect.DeepEqual(got, s) {
		t.Errorf("the state comes back as %+v", got)
	}
}

// Bytes that are no value are told, whatever they are, and take no memory beyond their length.
func FuzzValues(f *testing.F) {
	job := history.Job{Life: 1, ID: "etl", Labels: map[string]string{"a": "b"}}
	for _, value := range [][]byte{
		encodeJob(&job), encodeGap(&history.Gap{Reason: "x"}), (&state{instance: "i"}).encode(),
		encodeSums(&history.Sums{Used: map[string]history.Amount{"cpu": {High: 1, Low: 2}}}),
		(&head{n: 1, objects: []int64{3}}).encode(),
	} {
		f.Add(value[:len(value)-sqlitefile.ChecksumBytes])
	}
	c := codecConn(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		value := sqlitefile.Sealed(bytes.Clone(data))
		told := func(err error) {
			if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
				t.Error(err)
			}
		}
		_, err := c.decodeJob(1, value)
		told(err)
		_, err = c.decodeGap(value)
		told(err)
		_, err = c.decodeHead(1, value, true)
		told(err)
		if sums, ok := decodeSums(value, map[string]string{}); ok && len(sums.Waits.Buckets) > len(data) {
			t.Error("there are more buckets than bytes")
		}
		_, err = c.packing.unpack(data, 1<<20)
		if content, _ := c.packing.pack(data); err == nil && len(content) > len(data) {
			t.Error("packed data is larger")
		}
	})
}

func TestFoldsThatStay(t *testing.T) {
	folds := func(totals ...int64) (all []foldHead) {
		for i, total := range totals {
			all = append(all, foldHead{chunk: int64(i + 1), time: total, total: total, bytes: 10})
		}
		return all
	}
	rule := thinning{age: 100, distance: 50, count: 100, bytes: 1000}
	for name, c := range map[string]struct {
		rule  thinning
		folds []foldHead
		gaps  []int // indexes
		want  []int64
	}{
		"none":                        {rule, nil, nil, nil},
		"the last day":                {rule, folds(10, 20, 30, 40), nil, nil},
		"older ones at a distance":    {rule, folds(10, 20, 30, 40, 50, 60, 70, 300), nil, []int64{2, 3, 4, 5}},
		"behind a gap":                {rule, folds(10, 20, 30, 40, 50, 60, 70, 300), []int{3}, []int64{2, 3, 5, 6}},
		"too many":                    {thinning{1000, 50, 2, 1000}, folds(10, 20, 50, 60), nil, []int64{1, 3}},
		"too large":                   {thinning{1000, 50, 9, 25}, folds(10, 20, 50, 60), nil, []int64{1, 3}},
		"one that is larger than all": {thinning{1000, 50, 9, 1}, folds(10), nil, nil},
		"gaps last":                   {thinning{1000, 50, 2, 1000}, folds(10, 20, 50, 60), []int{1}, []int64{1, 3}},
		"only gaps":                   {thinning{1000, 50, 2, 1000}, folds(10, 20, 60), []int{0, 1}, []int64{1}},
	} {
		for _, i := range c.gaps {
			c.folds[i].gap = true
		}
		gone := map[int64]bool{}
		for _, f := range c.rule.drop(c.folds) {
			gone[f.chunk] = true
		}
		want := map[int64]bool{}
		for _, chunk := range c.want {
			want[chunk] = true
		}
		if !reflect.DeepEqual(gone, want) {
			t.Errorf("%s: %v go, not %v", name, gone, want)
		}
	}
}
