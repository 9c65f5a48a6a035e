// Package parquet reads files of internal/parquet with another implementation of the format.
package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	peer "github.com/parquet-go/parquet-go"

	"github.com/plimsoll-dev/plimsoll/internal/parquet"
)

// row is a row as the other implementation reads it.
type row struct {
	Name  string     `parquet:"name"`
	Count int64      `parquet:"count"`
	ID    uint64     `parquet:"id"`
	Hours float64    `parquet:"hours"`
	Ended *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
}

// Every value comes back, from one row group and from several.
func TestAnotherImplementationReadsWhatIsWritten(t *testing.T) {
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
	f, err := peer.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return err
	}
	r := peer.NewGenericReader[row](f)
	defer r.Close()
	if r.NumRows() != int64(rows) {
		return fmt.Errorf("it has %d rows", r.NumRows())
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
