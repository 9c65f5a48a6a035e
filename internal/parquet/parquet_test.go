package parquet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	format "github.com/parquet-go/parquet-go"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/parquet"
)

// row is a row as a program reads it.
type row struct {
	Name  string     `parquet:"name"`
	Count int64      `parquet:"count"`
	ID    uint64     `parquet:"id"`
	Hours float64    `parquet:"hours"`
	Ended *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
}

// Every value comes back, from one row group and from several.
func TestEveryValueComesBack(t *testing.T) {
	for _, rows := range []int{0, 1, 1000, 2*parquet.GroupRows + 7} {
		var file bytes.Buffer
		w, err := parquet.NewWriter(&file, []parquet.Column{
			{Name: "name", Type: parquet.String},
			{Name: "count", Type: parquet.Int},
			{Name: "id", Type: parquet.Uint},
			{Name: "hours", Type: parquet.Float},
			{Name: "ended", Type: parquet.Time},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			r := wanted(i)
			ended := time.Time{}
			if r.Ended != nil {
				ended = *r.Ended
			}
			if err := w.Write([]any{r.Name, r.Count, r.ID, r.Hours, ended}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := compare(file.Bytes(), rows); err != nil {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

func wanted(i int) row {
	r := row{fmt.Sprintf("job-%d é", i), int64(-i), 1<<63 + uint64(i), float64(i) / 3, nil}
	if i%3 != 0 {
		at := time.Unix(0, 1_763_000_000_123_456_789+int64(i)).UTC()
		r.Ended = &at
	}
	return r
}

func compare(file []byte, rows int) error {
	f, err := format.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return err
	}
	r := format.NewGenericReader[row](f)
	defer r.Close() //nolint:errcheck // it was only read
	if r.NumRows() != int64(rows) {
		return fmt.Errorf("it has %d rows", r.NumRows())
	}
	for i, field := range f.Root().Columns() {
		if names := []string{"name", "count", "id", "hours", "ended"}; field.Name() != names[i] {
			return fmt.Errorf("column %d is %s, not %s", i, field.Name(), names[i])
		}
	}
	if most := rows/parquet.GroupRows + 1; len(f.RowGroups()) > most {
		return fmt.Errorf("it has %d row groups, and %d are enough", len(f.RowGroups()), most)
	}
	read := make([]row, 1)
	for i := range rows {
		if _, err := r.Read(read); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		got, want := read[0], wanted(i)
		same := got.Name == want.Name && got.Count == want.Count && got.ID == want.ID && got.Hours == want.Hours
		if !same || (got.Ended == nil) != (want.Ended == nil) || want.Ended != nil && !got.Ended.Equal(*want.Ended) {
			return fmt.Errorf("row %d is %v; want %v", i, got, want)
		}
	}
	return nil
}

// A row group ends after about GroupBytes, however few rows it has: so the memory is bounded.
func TestARowGroupIsBoundedInBytes(t *testing.T) {
	var file bytes.Buffer
	w, err := parquet.NewWriter(&file, []parquet.Column{{Name: "text", Type: parquet.String}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := w.Write([]any{strings.Repeat("x", parquet.GroupBytes/4)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := format.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(f.RowGroups()); got != 5 {
		t.Errorf("there are %d row groups of 4 large rows; want 5", got)
	}
}

// Wrong columns, and rows of other types, are refused.
func TestWrongTablesAndRowsAreRefused(t *testing.T) {
	for _, columns := range [][]parquet.Column{
		nil, {{Name: "a", Type: parquet.Int}, {Name: "a", Type: parquet.String}},
	} {
		if _, err := parquet.NewWriter(io.Discard, columns); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("a table with the columns %v: %v", columns, err)
		}
	}
	w, err := parquet.NewWriter(io.Discard, []parquet.Column{{Name: "a", Type: parquet.Int}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]any{{}, {"text"}, {int64(1), int64(2)}, {uint64(1)}, {nil}} {
		if err := w.Write(row); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("the row %v: %v", row, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// failing is a disk that takes no more.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestAWriteThatFailsIsTold(t *testing.T) {
	w, err := parquet.NewWriter(failing{}, []parquet.Column{{Name: "a", Type: parquet.Int}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write([]any{int64(1)})
	if err = errors.Join(err, w.Close()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("the error is %v", err)
	}
}
