package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
)

// watchFlag is embedded in commands that list objects.
type watchFlag struct {
	Watch bool `short:"w" help:"Go on with a line for each change."`
}

// watchHelp is the part of the help text that is the same for all lists.
const watchHelp = "\n\nWith --watch, JSON and YAML are printed as one object a line. A type says what it is: reset " +
	"(the list begins: forget all before), present (in the list at first), synced (that was all), added, updated, " +
	"left (no longer meets the criteria) or deleted."

// watchedView is how a watch prints its objects.
type watchedView[T any] struct {
	header []string
	usual  []string // the cells of a usual row, which give columns their first widths
	row    func(*T) []string
	json   func(*T) any
}

// watchedLine is a change for scripts.
type watchedLine struct {
	Type     string `json:"type"`
	Object   any    `json:"object,omitempty"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
}

// printChanges prints the changes of a watch until its context ends.
func printChanges[T any](
	ctx context.Context, a *app, format formatFlag, changes iter.Seq2[client.Change[T], error], view watchedView[T],
) error {
	table := newGrowingTable(a.out, append([]string{"TIME", "CHANGE"}, view.header...),
		append([]string{clock(a.now().UnixNano()), client.ChangePresent.String()}, view.usual...))
	for change, err := range changes {
		if canceled(err) && ctx.Err() != nil {
			return nil // an interrupt is the normal end of a watch
		}
		if err != nil {
			return err
		}
		if change.Type == client.ChangeBookmark {
			continue
		}
		if format.Output != "table" {
			err = printChange(a, &change, view)
		} else {
			table.change(a, change.Type, func() []string { return view.row(&change.Object) })
		}
		if err == nil {
			err = a.out.failure()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printChange prints a change as a line of JSON, which is also YAML.
func printChange[T any](a *app, change *client.Change[T], view watchedView[T]) error {
	shown := watchedLine{Type: change.Type.String(), Revision: change.Revision}
	switch change.Type {
	case client.ChangeReset:
	case client.ChangeSynced:
		shown.Epoch, shown.Revision = change.Point.Epoch, change.Point.Revision
	default:
		shown.Object = view.json(&change.Object)
	}
	line, err := json.Marshal(shown)
	if err != nil {
		return fmt.Errorf("print a change: %w", err)
	}
	a.out.records(append(line, '\n'))
	return nil
}

// growingTable is a table to which rows are added after it was printed. A column gets as wide as
// its widest cell so far, up to growsTo, and stays so wide.
type growingTable struct {
	o      *output
	header []string
	begun  bool       // a snapshot was printed
	rows   [][]string // of the snapshot under way
	widths []int
}

// growsTo is the width to which cells widen a column of a growingTable. A longer cell moves only
// the rest of its own row.
const growsTo = 40

// newGrowingTable returns a table whose columns have room for the header and a usual row.
func newGrowingTable(o *output, header, usual []string) *growingTable {
	t := &growingTable{o: o, header: header, widths: make([]int, len(header))}
	t.widen(header)
	t.widen(usual)
	return t
}

// change adds a change of a watch to the table. A snapshot is printed once it is whole.
func (t *growingTable) change(a *app, change client.ChangeType, row func() []string) {
	timed := func() []string {
		return append([]string{clock(a.now().UnixNano()), change.String()}, row()...)
	}
	switch change {
	case client.ChangeReset:
		if t.begun {
			a.notes.printf("the changes meanwhile are no longer known: the list begins again\n")
		}
		t.rows = nil
	case client.ChangePresent:
		t.rows = append(t.rows, timed())
	case client.ChangeSynced:
		for _, r := range t.rows {
			t.widen(r)
		}
		t.print(t.header)
		for _, r := range t.rows {
			t.print(r)
		}
		t.rows, t.begun = nil, true
	default:
		t.print(timed())
	}
}

// widen makes room for the cells of a row.
func (t *growingTable) widen(row []string) {
	for i, cell := range row {
		t.widths[i] = max(t.widths[i], min(growsTo, cells(oneLine(cell))))
	}
}

// print prints a row, and a dash for an empty cell.
func (t *growingTable) print(row []string) {
	t.widen(row)
	var b strings.Builder
	for i, cell := range row {
		if cell = oneLine(cell); cell == "" {
			cell = "-"
		}
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", 2+max(0, t.widths[i]-cells(cell))))
		}
	}
	t.o.printf("%s\n", strings.TrimRight(b.String(), " "))
}

// instants formats instants in Unix nanoseconds for a table; zero as nothing.
type instants func(nanos int64) string

// relative returns the format of tables that are printed once: how long ago it was.
func relative(now time.Time) instants {
	return func(nanos int64) string { return ago(now, nanos) }
}

// clock is the format of tables that go on: the time of day in UTC.
func clock(nanos int64) string {
	if nanos == 0 {
		return ""
	}
	return time.Unix(0, nanos).UTC().Format(time.TimeOnly)
}
