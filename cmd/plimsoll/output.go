package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/terminal"
)

// output writes until the first error and keeps it. Goroutines may share an output: the text of one
// call stays together.
//
// A command writes only through these methods, and each method passes only its own kind of content:
// printf text, paint text and colours, records JSON and YAML. steer is for control sequences of our
// own. write, below them, is for taskWriter.
type output struct {
	w        io.Writer
	terminal bool // w is a terminal
	mu       struct {
		sync.Mutex
		err error
	}
}

// failure returns the error that ended the output; nil if there was none.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.err
}

// printf writes text without the runes that steer a terminal.
func (o *output) printf(format string, args ...any) {
	o.write([]byte(lines(fmt.Sprintf(format, args...))))
}

// paint writes text with the colours of a page.
func (o *output) paint(text string) { o.write([]byte(painted(text))) }

// painted returns text in which colours are the only control sequences.
func painted(text string) string {
	var f terminal.Filter
	return string(f.Flush(f.Append(nil, []byte(text))))
}

// steer writes control sequences of our own, and between them text that was cleaned before.
func (o *output) steer(text string) { o.write([]byte(text)) }

// records writes JSON or YAML.
func (o *output) records(data []byte) { o.write(escaped(data)) }

func (o *output) write(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.err != nil {
		return
	}
	if _, err := o.w.Write(data); err != nil {
		o.mu.err = fmt.Errorf("write the output: %w", err)
	}
}

// formatFlag is embedded in commands that print a result.
type formatFlag struct {
	Output string `short:"o" help:"How to print: ${enum}." enum:"table,json,yaml" default:"table"`
}

// nodeFormatFlag is nameFormatFlag with a table of more columns.
type nodeFormatFlag struct {
	Output string `short:"o" help:"How to print: ${enum}. wide has more columns, and name only the ids." enum:"table,wide,name,json,yaml" default:"table"`
}

// nameFormatFlag is formatFlag for commands that also print names alone, for scripts.
type nameFormatFlag struct {
	Output string `short:"o" help:"How to print: ${enum}. name prints only the ids." enum:"table,name,json,yaml" default:"table"`
}

// print is that of formatFlag, for formats other than name.
func (f nameFormatFlag) print(a *app, v any, table func(o *output)) error {
	return formatFlag(f).print(a, v, table)
}

// print writes v as JSON or YAML, or calls table.
func (f formatFlag) print(a *app, v any, table func(o *output)) error {
	switch f.Output {
	case "json":
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("print as JSON: %w", err)
		}
		a.out.records(b.Bytes())
	case "yaml":
		data, err := config.FormatYAML(v)
		if err != nil {
			return err
		}
		a.out.records(data)
	default:
		table(a.out)
	}
	return nil
}

// fields prints names and values below each other, aligned. Empty values are left out.
func fields(o *output, pairs ...[2]string) {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	for _, p := range pairs {
		if p[1] != "" {
			o.printf("%-*s  %s\n", width+1, p[0]+":", oneLine(p[1]))
		}
	}
}

// columns prints rows below a header, aligned.
func columns(o *output, header []string, rows [][]string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		for i, c := range cells {
			if c = oneLine(c); c == "" {
				c = "-"
			}
			if i > 0 {
				c = "\t" + c
			}
			_, _ = io.WriteString(w, c) // into memory
		}
		_, _ = io.WriteString(w, "\n")
	}
	line(header)
	for _, r := range rows {
		line(r)
	}
	_ = w.Flush() // into memory
	for text := range strings.Lines(b.String()) {
		o.printf("%s\n", strings.TrimRight(text, " \n"))
	}
}

// ago formats the time since an instant in Unix nanoseconds; empty for zero.
func ago(now time.Time, instant int64) string {
	if instant == 0 {
		return ""
	}
	d := now.Sub(time.Unix(0, instant))
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// span formats a duration in its largest unit, and below ten minutes also in the next smaller one.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		if s := d % time.Minute / time.Second; s > 0 {
			return fmt.Sprintf("%dm%ds", d/time.Minute, s)
		}
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// stamp formats an instant for scripts. Zero is nil, which is printed as null.
func stamp(nanos int64) *string {
	if nanos == 0 {
		return nil
	}
	s := time.Unix(0, nanos).UTC().Format(time.RFC3339Nano)
	return &s
}

// plural returns "1 task", "2 tasks".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
