package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/parquet"
)

type historyExportCmd struct {
	File string `arg:"" help:"File to write; - is the standard output."`
	What string `help:"What to write: ${enum}." enum:"events,jobs,usage" default:"events"`
	usageFilterFlags
	By     []string `help:"Rows of usage, as in plimsoll usage." default:"hour,owner,queue" placeholder:"WORD"`
	Node   string   `help:"Only events of this node." placeholder:"ID"`
	Output string   `short:"o" help:"Form: ${enum}. json is one object a line." enum:"csv,json,parquet" default:"csv"`
}

// Help is the detail of the help text.
func (historyExportCmd) Help() string {
	return "The file is written as FILE.part and renamed when it is complete. Events are chosen by --job, --queue or " +
		"--node, jobs and usage also by --owner and --label.\n\n" +
		example("plimsoll history export --since 7d -o csv events.csv",
			"plimsoll history export --what usage --by day,owner --since 30d -o parquet usage.parquet",
			"plimsoll history export --what jobs --owner ann -o json - | jq .id")
}

// exportRows are the rows of a file with their columns. Each value is of the type of its column.
type exportRows struct {
	columns []parquet.Column
	rows    iter.Seq2[[]any, error]
}

// Run writes a file.
func (cmd *historyExportCmd) Run(ctx context.Context, a *app) error {
	filter, err := cmd.filter(a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var rows exportRows
	switch cmd.What {
	case "events":
		rows, err = cmd.events(ctx, c, &filter)
	case "jobs":
		rows, err = cmd.jobs(ctx, c, &filter)
	default:
		rows, err = cmd.usage(ctx, c, filter)
	}
	if err != nil {
		return err
	}
	write := map[string]func(io.Writer, exportRows) (int, error){
		"csv": exportCSV, "json": exportJSON, "parquet": exportParquet,
	}[cmd.Output]
	if cmd.File == "-" {
		_, err := write(&recordWriter{a.out}, rows)
		return err
	}
	n, err := writeWhole(cmd.File, everyone, func(w io.Writer) (int, error) { return write(w, rows) })
	if err == nil {
		a.notes.printf("wrote %s to %s\n", plural(n, "row"), cmd.File)
	}
	return err
}

// recordWriter writes to the standard output.
type recordWriter struct{ o *output }

// Write implements io.Writer.
func (w *recordWriter) Write(p []byte) (int, error) {
	w.o.write(p)
	return len(p), w.o.failure()
}

// The permissions of a file that is written whole.
const (
	everyone  os.FileMode = 0o644
	ownerOnly os.FileMode = 0o600
)

// partOf returns the path at which a file is written until it is complete.
func partOf(path string) string { return path + ".part" }

// writeWhole writes a file beside its place and moves it there when it is complete.
func writeWhole(path string, mode os.FileMode, write func(io.Writer) (int, error)) (n int, err error) {
	part := partOf(path)
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) { // it may have another mode
		return 0, &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: "write " + path, Msg: cause(err)}
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return 0, &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: "write " + path, Msg: cause(err)}
	}
	if n, err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return n, errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(part))
	}
	return n, nil
}

// events returns the rows of events.
func (cmd *historyExportCmd) events(ctx context.Context, c *client.Client, f *client.UsageFilter) (exportRows, error) {
	if f.Owner != "" || len(f.Labels) > 0 {
		return exportRows{}, plimsoll.Invalid("--owner", "and --label choose jobs or usage; add --what jobs, or leave them out")
	}
	filter := client.TimelineFilter{Job: f.Job, Queue: f.Queue, Node: cmd.Node, Since: f.Since, Until: f.Until}
	r := exportRows{columns: []parquet.Column{{Name: "time", Type: parquet.Time}, {Name: "id", Type: parquet.Uint}}}
	for _, name := range []string{
		"instance", "type", "change", "detail", "object", "reference", "resources", "message", "subject", "text",
	} {
		r.columns = append(r.columns, parquet.Column{Name: name, Type: parquet.String})
	}
	r.rows = func(yield func([]any, error) bool) {
		for e, err := range c.Timeline(ctx, filter) {
			if err != nil {
				yield(nil, err)
				return
			}
			v := viewHistoryEvent(&e)
			if !yield([]any{
				exportTime(e.Event.Time), v.ID, v.Instance, v.Type, v.Change, v.Detail, v.Object, v.Reference,
				resourcesText(v.Resources), v.Message, v.Subject, v.Text,
			}, nil) {
				return
			}
		}
	}
	return r, nil
}

// jobs returns the rows of jobs.
func (cmd *historyExportCmd) jobs(ctx context.Context, c *client.Client, f *client.UsageFilter) (exportRows, error) {
	if cmd.Node != "" {
		return exportRows{}, plimsoll.Invalid("--node", "chooses events; leave it out")
	}
	filter := client.HistoryJobFilter{
		ID: f.Job, Owner: f.Owner, Queue: f.Queue, Labels: f.Labels, Since: f.Since, Until: f.Until,
	}
	r := exportRows{columns: []parquet.Column{
		{Name: "submitted", Type: parquet.Time}, {Name: "ended", Type: parquet.Time}, {Name: "life", Type: parquet.Int},
	}}
	for _, name := range []string{"id", "uid", "owner", "queue", "labels", "state"} {
		r.columns = append(r.columns, parquet.Column{Name: name, Type: parquet.String})
	}
	r.rows = func(yield func([]any, error) bool) {
		for j, err := range c.HistoryJobs(ctx, filter) {
			if err != nil {
				yield(nil, err)
				return
			}
			labels := []string{}
			for _, pair := range plimsoll.SortedPairs(j.Labels) {
				labels = append(labels, pair[0]+"="+pair[1])
			}
			if !yield([]any{
				exportTime(j.Submitted), exportTime(j.Ended), j.Life, j.ID, j.UID.Text(), j.Owner, j.Queue,
				strings.Join(labels, ","), j.State.String(),
			}, nil) {
				return
			}
		}
	}
	return r, nil
}

// usage returns the rows of usage.
func (cmd *historyExportCmd) usage(ctx context.Context, c *client.Client, f client.UsageFilter) (exportRows, error) {
	if cmd.Node != "" {
		return exportRows{}, plimsoll.Invalid("--node", "chooses events; leave it out")
	}
	f.By = cmd.By
	u, err := c.Usage(ctx, f)
	if err != nil {
		return exportRows{}, err
	}
	return usageRows(f.By, &u), nil
}

// usageRows returns the rows of an answer about usage.
func usageRows(by []string, u *client.Usage) exportRows {
	names := usedNames(u.Rows)
	r := exportRows{}
	for _, word := range by {
		r.columns = append(r.columns, parquet.Column{Name: word, Type: parquet.String})
	}
	for _, name := range names {
		r.columns = append(r.columns, parquet.Column{Name: hoursColumn(name), Type: parquet.Float})
	}
	for _, name := range []string{"started", "ended", "failed", "waits"} {
		r.columns = append(r.columns, parquet.Column{Name: name, Type: parquet.Uint})
	}
	for _, name := range []string{"wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_longest_s"} {
		r.columns = append(r.columns, parquet.Column{Name: name, Type: parquet.Float})
	}
	r.rows = func(yield func([]any, error) bool) {
		for i := range u.Rows {
			if !yield(usageValues(&u.Rows[i], names), nil) {
				return
			}
		}
	}
	return r
}

func usageValues(u *client.UsageRow, names []string) []any {
	var row []any
	for _, key := range u.Keys {
		row = append(row, key)
	}
	for _, name := range names {
		row = append(row, hoursOf(name, u.Used[name]))
	}
	w := &u.Waits
	return append(row, u.Started, u.Ended, u.Failed, w.Count, w.Mean.Seconds(), w.P50.Seconds(), w.P95.Seconds(),
		w.Longest.Seconds())
}

// hoursColumn returns the name of the column with the hours of a resource.
func hoursColumn(resource string) string {
	return strings.ReplaceAll(strings.ToLower(hoursTitle(resource)), " ", "_")
}

// exportTime returns an instant; 0 is the zero time, which stands for none.
func exportTime(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

// resourcesText formats amounts in one field.
func resourcesText(r plimsoll.Resources) string {
	parts := []string{}
	for _, name := range r.Names() {
		parts = append(parts, name+"="+plimsoll.FormatQuantity(name, r[name]))
	}
	return strings.Join(parts, ";")
}

// exportCSV writes rows as comma-separated values, with a line of titles.
func exportCSV(to io.Writer, r exportRows) (n int, err error) {
	w := csv.NewWriter(to)
	line := make([]string, len(r.columns))
	for i := range r.columns {
		line[i] = r.columns[i].Name
	}
	if err := w.Write(line); err != nil {
		return 0, err
	}
	for row, err := range r.rows {
		if err != nil {
			return n, err
		}
		for i := range row {
			line[i] = exportText(row[i])
		}
		if err := w.Write(line); err != nil {
			return n, err
		}
		n++
	}
	w.Flush()
	return n, w.Error()
}

// exportJSON writes an object a line.
func exportJSON(to io.Writer, r exportRows) (n int, err error) {
	for row, err := range r.rows {
		if err != nil {
			return n, err
		}
		line := []byte{'{'}
		for i := range row {
			if i > 0 {
				line = append(line, ',')
			}
			value := row[i]
			if at, is := value.(time.Time); is && at.IsZero() {
				value = nil
			}
			for j, v := range []any{r.columns[i].Name, value} {
				data, err := json.Marshal(v)
				if err != nil {
					return n, fmt.Errorf("write as JSON: %w", err)
				}
				line = append(line, data...)
				if j == 0 {
					line = append(line, ':')
				}
			}
		}
		if _, err := to.Write(append(line, '}', '\n')); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// exportText returns a value for CSV.
func exportText(value any) string {
	switch v := value.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(value)
}

// exportParquet writes rows in the form of Apache Parquet.
func exportParquet(to io.Writer, r exportRows) (n int, err error) {
	w, err := parquet.NewWriter(to, r.columns)
	if err != nil {
		return 0, err
	}
	for row, err := range r.rows {
		if err == nil {
			err = w.Write(row)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, w.Close()
}
