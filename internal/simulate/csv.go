package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// table reads a file of comma-separated values with a header.
type table struct {
	name    string
	reader  *csv.Reader
	columns map[string]int
	row     []string
	line    int
	err     error // first unreadable field
	bounded int   // rows whose bound on a node the simulation does not have
}

func readTable(name string, r io.Reader, needed ...string) (*table, error) {
	t := &table{name: name, reader: csv.NewReader(r), columns: map[string]int{}, line: 1}
	header, err := t.reader.Read()
	if err != nil {
		return nil, plimsoll.Invalid(name, "has no header that can be read: %v", err)
	}
	for i, column := range header {
		t.columns[column] = i
	}
	return t, t.need(needed...)
}

// need returns an error if a column is missing.
func (t *table) need(columns ...string) error {
	for _, column := range columns {
		if _, ok := t.columns[column]; !ok {
			return plimsoll.Invalid(
				t.name, "has no column %s; its columns are %s", column, strings.Join(sortedKeys(t.columns), ", "),
			)
		}
	}
	return nil
}

// next reads the next row, and reports whether there is one.
func (t *table) next() bool {
	if t.err != nil {
		return false
	}
	row, err := t.reader.Read()
	if err == io.EOF {
		return false
	}
	t.line++
	if err != nil {
		t.err = plimsoll.Invalid(fmt.Sprint(t.name, ":", t.line), "cannot be read: %v", err)
		return false
	}
	t.row = row
	return true
}

func (t *table) text(column string) string { return t.row[t.columns[column]] }

// most is the largest number that a file may have. Seconds of it, and MiB, do not overflow.
const most = 1e9

// number reads a number from 0, or from other if that is lower. An empty field is other.
func (t *table) number(column string, other float64) float64 {
	text := t.text(column)
	if text == "" {
		return other
	}
	n, err := strconv.ParseFloat(text, 64)
	if (err != nil || !(n >= min(other, 0) && n <= most)) && t.err == nil {
		t.err = plimsoll.Invalid(
			fmt.Sprint(t.name, ":", t.line), "%s is %q; give a number from %.0f to %.0f", column, text, min(other, 0),
			most,
		)
	}
	return n
}

// padded writes a number with zeros before it.
func padded(n, width int) string { return fmt.Sprintf("%0*d", width, n) }
