package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The pages of the project are README.md and all Markdown files below docs. CONTRIBUTING.md says
// how their blocks of code are written; e2e_pages_test.go runs them.

// blocksNotRun is how many blocks of a page are marked as not run. A page that is not named has
// none.
var blocksNotRun = map[string]int{
	"docs/cluster.md":                  6,
	"docs/concepts/queues.md":          1,
	"docs/concepts/tokens.md":          1,
	"docs/gateway-load.md":             1,
	"docs/operating.md":                2,
	"docs/qos-latency.md":              1,
	"docs/recovery.md":                 1,
	"docs/reference/api.md":            2,
	"docs/reference/event-settings.md": 3,
	"docs/reference/queue-file.md":     1,
	"docs/simulate.md":                 3,
}

// docPage is a Markdown page.
type docPage struct {
	name   string // its path in the repository
	lines  []string
	blocks []pageBlock
}

// pageBlock is a block of code.
type pageBlock struct {
	line     int // of the fence that opens it
	language string
	lines    []string
	saveAs   string // name of the file that it is saved as
	notRun   string // why it is not run
}

// pageCommand is a command of a console block, with the output that the page shows.
type pageCommand struct {
	line     int
	terminal string // the name before the prompt
	text     string
	output   []string
}

var (
	pageFence  = regexp.MustCompile("^( *)```(.*)$")
	pageSaveAs = regexp.MustCompile("[Ss]ave (?:\\w+ )?as `([^`]+)`")
	pageNotRun = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
	pagePrompt = regexp.MustCompile(`^([a-z][a-z0-9-]*)?\$ (.*)$`)

	// pageCommandLine finds commands in blocks that are data by their language.
	pageCommandLine = regexp.MustCompile(`^\s*(\$ |sudo |(bin/)?plimsoll |make |go (run|test|build) |curl |systemctl )`)
	// pageForbidden finds what no test may do to the machine that it runs on.
	pageForbidden = regexp.MustCompile(`\b(sudo|systemctl|apt|apt-get|pkill|killall|ssh|scp)\b`)
)

// pageDataLanguages are the languages of blocks that are no commands.
var pageDataLanguages = []string{"go", "ini", "json", "proto", "text", "yaml"}

func parsePage(name, text string) (docPage, error) {
	p := docPage{name: name, lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	var block *pageBlock
	indent, before := "", ""
	for i, line := range p.lines {
		fence := pageFence.FindStringSubmatch(line)
		switch {
		case block == nil && fence != nil:
			indent, block = fence[1], &pageBlock{line: i + 1, language: fence[2]}
			if m := pageSaveAs.FindStringSubmatch(before); m != nil {
				block.saveAs = m[1]
			}
			if m := pageNotRun.FindStringSubmatch(before); m != nil {
				block.notRun = m[1]
			}
		case block == nil && strings.TrimSpace(line) != "":
			before = line
		case block != nil && fence != nil:
			p.blocks = append(p.blocks, *block)
			block, before = nil, ""
		case block != nil:
			block.lines = append(block.lines, strings.TrimPrefix(line, indent))
		}
	}
	if block != nil {
		return p, fmt.Errorf("%s:%d: the block has no end", name, block.line)
	}
	return p, nil
}

// check wants a block to be run, marked, or data.
func (b *pageBlock) check() error {
	if b.notRun != "" {
		return nil
	}
	switch {
	case b.language == "console":
		commands, err := b.commands()
		if err != nil {
			return err
		}
		for _, c := range commands {
			if pageForbidden.MatchString(c.text) {
				return fmt.Errorf(
					"%q cannot run in a test; put the line <!-- not run: REASON --> before the block", c.text,
				)
			}
		}
		return nil
	case !slices.Contains(pageDataLanguages, b.language):
		return fmt.Errorf("a block of %q is neither console nor one of %v; make it a console block, "+
			"or put the line <!-- not run: REASON --> before it", b.language, pageDataLanguages)
	case b.saveAs != "":
		return nil
	}
	if i := slices.IndexFunc(b.lines, pageCommandLine.MatchString); i >= 0 {
		return fmt.Errorf("%q is a command in a block of %q; make it a console block", b.lines[i], b.language)
	}
	return nil
}

// commands returns the commands of a console block with their outputs.
func (b *pageBlock) commands() (all []pageCommand, err error) {
	for i := 0; i < len(b.lines); i++ {
		m := pagePrompt.FindStringSubmatch(b.lines[i])
		if m == nil {
			if len(all) == 0 {
				return nil, fmt.Errorf("line %d stands before the first command; commands begin with $", b.line+1+i)
			}
			all[len(all)-1].output = append(all[len(all)-1].output, b.lines[i])
			continue
		}
		c := pageCommand{line: b.line + 1 + i, terminal: m[1], text: m[2]}
		for strings.HasSuffix(c.text, `\`) && i+1 < len(b.lines) {
			i++
			c.text += "\n" + b.lines[i]
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the block of line %d has no command", b.line)
	}
	return all, nil
}

// Parts of a sample that differ from run to run, and are not compared.
var (
	pageInstant = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	pageUUID    = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	// A large number with m alone is thousandths of a core.
	pageTime = regexp.MustCompile(`\bjust now\b|\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|ms|s|h)( ago)?\b|` +
		`\b[1-5]?\dm( ago)?\b`)
	pageSpaces = regexp.MustCompile(` {2,}`)
)

// leaveOut replaces what differs from run to run: instants, times and ages, generated ids, and the
// width of columns.
func leaveOut(text string) string {
	text = pageInstant.ReplaceAllString(text, "<instant>")
	text = pageUUID.ReplaceAllString(text, "<id>")
	text = pageTime.ReplaceAllString(text, "<time>")
	return pageSpaces.ReplaceAllString(text, " ")
}

// sampleLine is a line of a sample as an expression. In it ... stands for any text.
func sampleLine(line string) string {
	parts := strings.Split(leaveOut(strings.TrimRight(line, " ")), "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return strings.Join(parts, ".*")
}

// matchSample says whether a command printed what the page shows. A line of nothing but ... stands
// for any number of lines.
func matchSample(sample []string, printed string) bool {
	var expression strings.Builder
	expression.WriteString("^")
	for _, line := range sample {
		if strings.TrimSpace(line) == "..." {
			expression.WriteString(`(?:.*\n)*?`)
			continue
		}
		expression.WriteString(sampleLine(line) + `\n`)
	}
	expression.WriteString("$")
	var lines strings.Builder
	for line := range strings.Lines(printed) {
		lines.WriteString(leaveOut(strings.TrimRight(line, " \n")) + "\n")
	}
	return regexp.MustCompile(expression.String()).MatchString(lines.String())
}

// readPages reads all pages.
func readPages(t *testing.T) (pages []docPage) {
	t.Helper()
	root := os.DirFS("../..")
	names := []string{"README.md"}
	err := fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePage(name, string(text))
		if err != nil {
			t.Error(err)
		}
		pages = append(pages, p)
	}
	return pages
}

// TestEveryBlockIsRunOrSaysWhyNot: no block of commands is left out silently, and those that say
// why are as many as the table has.
func TestEveryBlockIsRunOrSaysWhyNot(t *testing.T) {
	for _, p := range readPages(t) {
		run, not := 0, 0
		for _, b := range p.blocks {
			if err := b.check(); err != nil {
				t.Errorf("%s:%d: %v", p.name, b.line, err)
			}
			switch {
			case b.notRun != "":
				not++
			case b.language == "console":
				run++
			}
		}
		if not != blocksNotRun[p.name] {
			t.Errorf("%s: %d blocks are marked as not run, blocksNotRun has %d", p.name, not, blocksNotRun[p.name])
		}
		t.Logf("%s: %d blocks are run, %d are not", p.name, run, not)
	}
}

// TestPagesAreAtMost100ColumnsWide, but for rows of tables. Decisions are not edited.
func TestPagesAreAtMost100ColumnsWide(t *testing.T) {
	for _, p := range readPages(t) {
		if strings.HasPrefix(p.name, "docs/decisions/") {
			continue
		}
		for i, line := range p.lines {
			if n := utf8.RuneCountInString(line); n > 100 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d: has %d columns; at most 100 are possible", p.name, i+1, n)
			}
		}
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestIndexHasEveryPage, and links between pages lead to files that exist.
func TestIndexHasEveryPage(t *testing.T) {
	index := map[string]bool{}
	for _, p := range readPages(t) {
		for _, m := range pageLink.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			target := filepath.Join(filepath.Dir(p.name), m[1])
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: there is no %s", p.name, m[1])
			}
			if p.name == "docs/README.md" {
				index[target] = true
			}
		}
	}
	for _, p := range readPages(t) {
		switch {
		case index[p.name], p.name == "README.md", p.name == "docs/README.md", strings.HasPrefix(
			p.name, "docs/decisions/",
		):
		default:
			t.Errorf("docs/README.md does not name %s", p.name)
		}
	}
}

var (
	pageAnchor   = regexp.MustCompile(`\]\(([^)#:]*\.md)?#([^)]+)\)`)
	pageNoAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksLeadToSectionsThatExist, in the same page or another one.
func TestLinksLeadToSectionsThatExist(t *testing.T) {
	sections := map[string]bool{}
	pages := readPages(t)
	for _, p := range pages {
		for _, line := range p.lines {
			if heading := strings.TrimLeft(line, "#"); len(heading) < len(line) {
				heading = pageNoAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
				sections[p.name+"#"+strings.ReplaceAll(heading, " ", "-")] = true
			}
		}
	}
	for _, p := range pages {
		for _, m := range pageAnchor.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			page := p.name
			if m[1] != "" {
				page = filepath.Join(filepath.Dir(p.name), m[1])
			}
			if !sections[page+"#"+m[2]] {
				t.Errorf("%s: %s has no section %s", p.name, page, m[2])
			}
		}
	}
}

// TestBlocksOfAPageAreFound with their files, reasons and commands.
func TestBlocksOfAPageAreFound(t *testing.T) {
	p, err := parsePage("x.md", strings.ReplaceAll(`# X

Save this as ~a.yaml~:

~~~yaml
a: 1
~~~

<!-- not run: needs root -->
~~~console
$ sudo x
~~~

~~~console
dev$ plimsoll dev \
    --data x
ready
$ echo hello   # a greeting
hello
~~~
`, "~", "`"))
	if err != nil || len(p.blocks) != 3 {
		t.Fatalf("%v, %v", p.blocks, err)
	}
	if p.blocks[1].notRun != "needs root" || p.blocks[2].notRun != "" || p.blocks[1].saveAs != "" {
		t.Errorf("%+v", p.blocks)
	}
	commands, err := p.blocks[2].commands()
	got := fmt.Sprintf("%+v, %v", commands, err)
	want := "[{line:15 terminal:dev text:plimsoll dev \\\n    --data x output:[ready]} " +
		"{line:18 terminal: text:echo hello   # a greeting output:[hello]}], <nil>"
	if got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestBlocksThatCannotBeRunAreRefused unless they say why.
func TestBlocksThatCannotBeRunAreRefused(t *testing.T) {
	for _, b := range []pageBlock{
		{language: "", lines: []string{"plimsoll node list"}},
		{language: "sh", lines: []string{"plimsoll node list"}},
		{language: "text", lines: []string{"plimsoll node list"}},
		{language: "yaml", lines: []string{"$ plimsoll node list"}},
		{language: "console", lines: []string{"plimsoll node list"}},
		{language: "console", lines: []string{"$ sudo plimsoll dev"}},
		{language: "console"},
	} {
		if b.check() == nil {
			t.Errorf("%+v is not refused", b)
		}
		b.notRun = "it needs root"
		if err := b.check(); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	for _, b := range []pageBlock{
		{language: "console", lines: []string{"$ plimsoll node list"}},
		{language: "yaml", lines: []string{"job: x"}},
		{language: "text", lines: []string{"a picture"}},
	} {
		if err := b.check(); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// TestSamplesAreComparedButForTimesAndIDs: a sample may leave lines and words open with "...".
func TestSamplesAreComparedButForTimesAndIDs(t *testing.T) {
	for _, test := range []struct {
		sample, printed string
		same            bool
	}{
		{"n1  ready  2s ago", "n1   ready  just now\n", true},
		{"took 1m3.5s", "took 12ms\n", true},
		{"at 2026-11-22T13:54:58.400Z", "at 2027-01-01T00:00:00Z\n", true},
		{"cpu 500m", "cpu 100m\n", false},
		{"5m ago", "2h ago\n", true},
		{"3 tasks", "4 tasks\n", false},
		{"disk ...Gi left", "disk 252Gi left\n", true},
		{"disk ...Gi left", "disk 252Mi left\n", false},
		{"one\n...\nlast", "one\ntwo\nthree\nlast\n", true},
		{"one\n...\nlast", "one\nlast\n", true},
		{"one\nlast", "one\ntwo\nlast\n", false},
		{"one", "one\ntwo\n", false},
		{"a.c", "abc\n", false},
	} {
		if got := matchSample(strings.Split(test.sample, "\n"), test.printed); got != test.same {
			t.Errorf("%q and %q: %v", test.sample, test.printed, got)
		}
	}
}
