package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
)

// mostOnTerminal is the number of objects that a list prints on a terminal, unless the command line
// says otherwise.
const mostOnTerminal = 50

// listFormatFlag is embedded in commands that list objects.
type listFormatFlag struct {
	Output string `short:"o" help:"How to print: ${enum}. wide has more columns, and name only the ids: ID~UID where several jobs may have had the id." enum:"table,wide,name,json,yaml" default:"table"`
}

func (f listFormatFlag) wide() bool { return f.Output == "wide" }

// list is a list for people.
type list struct {
	header []string
	count  int
	row    func(i int) []string
	name   func(i int) string
}

// print writes views as JSON or YAML, or the list as a table or as names.
func (f listFormatFlag) print(a *app, views any, l list) error {
	if f.Output == "name" {
		for i := range l.count {
			a.out.printf("%s\n", l.name(i))
		}
		return nil
	}
	return formatFlag(f).print(a, views, func(o *output) {
		rows := make([][]string, l.count)
		for i := range rows {
			rows[i] = l.row(i)
		}
		columns(o, l.header, rows)
	})
}

// watched returns the format of a watch.
func (f listFormatFlag) watched() (formatFlag, error) {
	switch f.Output {
	case "name", "wide":
		return formatFlag{}, plimsoll.Invalid(
			"--output", "%s cannot be used beside --watch; give table, json or yaml", f.Output,
		)
	}
	return formatFlag(f), nil
}

// listLimit is the value of --limit.
type listLimit struct {
	most  int32
	given bool
}

// Decode reads the value. It takes -1 for a number and not for a flag, so that the error says what
// to give.
func (l *listLimit) Decode(ctx *kong.DecodeContext) error {
	if ctx.Scan.Peek().IsEOL() {
		return errors.New("has no value; give 1 or more, or 0 for all")
	}
	text := ctx.Scan.Pop().String()
	most, err := strconv.ParseInt(text, 10, 32)
	if err != nil || most < 0 {
		return fmt.Errorf("%.40q is not possible; give 1 or more, or 0 for all", text)
	}
	*l = listLimit{int32(most), true}
	return nil
}

// most returns the largest number of objects to print; 0: all.
func (f listFormatFlag) most(a *app, limit listLimit) (int, error) {
	switch {
	case limit.given:
		return int(limit.most), nil
	case a.out.terminal && (f.Output == "table" || f.Output == "wide"):
		return mostOnTerminal, nil
	}
	return 0, nil
}

// listPage describes a page of a list.
type listPage struct {
	next    string
	total   int64 // of the whole list, if the page counts it
	atLeast bool  // there may be more than total
	damaged []string
}

// remainder describes the objects that a list leaves out.
type remainder struct {
	more    bool     // the list goes on
	total   int64    // as listPage.total
	atLeast bool     // as listPage.atLeast
	damaged []string // uids of jobs that the archive cannot read; at most maxDamaged
}

// maxDamaged bounds the uids of damaged jobs in an error.
const maxDamaged = 5

// limited reads pages of a list up to a number of objects; 0: all. The first page counts the whole
// list if that is larger than the page.
func limited[T any](most int, read func(size int32, next string) ([]T, listPage, error)) ([]T, remainder, error) {
	all, left := []T{}, remainder{}
	for next := ""; ; {
		size := int32(0)
		if most > 0 {
			size = int32(min(most-len(all), pageSize))
		}
		objects, page, err := read(size, next)
		if err != nil {
			return nil, left, err
		}
		if next == "" {
			left.total, left.atLeast = page.total, page.atLeast
		}
		all = append(all, objects...)
		left.damaged = append(left.damaged, page.damaged[:min(len(page.damaged), maxDamaged-len(left.damaged))]...)
		next = page.next
		if next == "" || most > 0 && len(all) >= most {
			left.more = next != ""
			return all, left, nil
		}
	}
}

// pageSize is the largest number of objects in a page of a list with a limit.
const pageSize = 10_000

// tell prints to stderr how many objects were left out, with the flags that list them. It fails if
// the archive cannot read some of the jobs.
func (r *remainder) tell(a *app, shown int, noun, flags string) error {
	if r.more {
		rest := "more " + noun + "s"
		if n := r.total - int64(shown); n > 0 {
			rest = plural(int(n), "more "+noun)
			if r.atLeast {
				rest = "at least " + rest
			}
		}
		a.notes.printf("and %s: %s\n", rest, flags)
	}
	if len(r.damaged) > 0 {
		return plimsoll.Errorf(plimsoll.CodeCorrupt,
			"the list lacks jobs that the archive cannot read, such as those with the uids %s; all others are listed",
			strings.Join(r.damaged, ", "))
	}
	return nil
}

// resultWord returns the word of a result on a command line, such as out-of-memory.
func resultWord(r plimsoll.TaskResult) string { return dashed(fmt.Sprint(r)) }

func dashed(word string) string { return strings.ReplaceAll(strings.ToLower(word), " ", "-") }
