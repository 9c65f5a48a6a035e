package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

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
	table := &growingTable{o: a.out, header: append([]string{"CHANGE"}, view.header...)}
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
			table.add(a, change.Type, func() []string { return view.row(&change.Object) })
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

// growingTable is a table to which rows are added after it was printed. The widths of its columns
// are those of the rows with which it began.
type growingTable struct {
	o      *output
	header []string
	begun  bool       // a snapshot was printed
	rows   [][]string // of the snapshot under way
	widths []int
}

// add adds a change to the table.
func (t *growingTable) add(a *app, change client.ChangeType, row func() []string) {
	switch change {
	case client.ChangeReset:
		if t.begun {
			a.notes.printf("the changes meanwhile are no longer known: the list begins again\n")
		}
		t.rows = nil
	case client.ChangePresent:
		t.rows = append(t.rows, append([]string{change.String()}, row()...))
	case client.ChangeSynced:
		t.begin()
	default:
		t.print(append([]string{change.String()}, row()...))
	}
}

// begin prints the header and the rows of the snapshot.
func (t *growingTable) begin() {
	t.widths = make([]int, len(t.header))
	t.widths[0] = len(client.ChangePresent.String())
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], cells(oneLine(cell)))
		}
	}
	t.print(t.header)
	for _, row := range t.rows {
		t.print(row)
	}
	t.rows, t.begun = nil, true
}

// print prints a row, and a dash for an empty cell.
func (t *growingTable) print(row []string) {
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
