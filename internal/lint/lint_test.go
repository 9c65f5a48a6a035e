package lint_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

const page = "# A page\n" +
	"```deps\n" +
	"demo ◆\n" +
	"gen/...\n" +
	"shapes ◆        ← demo\n" +
	"internal/engine ◆\n" +
	"internal/wire\n" +
	"client          ← demo gen/... internal/wire\n" +
	"internal/leader ●\n" +
	"internal/agent  ●\n" +
	"cmd/demo\n" +
	"```\n"

// sound returns packages that keep the rules of the page.
func sound() []lint.Package {
	list := []lint.Package{
		{Path: "."},
		{Path: "gen/v1"},
		{Path: "gen/v1/rpc", Imports: []string{"gen/v1"}},
		{Path: "shapes", Imports: []string{"."}, Outside: []string{"net/netip", "time"}},
		{Path: "internal/engine", Imports: []string{".", "shapes"}},
		{Path: "internal/wire", Imports: []string{".", "gen/v1"}, Outside: []string{"os", "sync"}},
		{Path: "client", Imports: []string{".", "gen/v1/rpc", "internal/wire"}},
		{Path: "internal/leader", Imports: []string{"internal/engine"}},
		{Path: "internal/agent", Imports: []string{"client"}},
		{Path: "cmd/demo", Imports: []string{"internal/agent", "internal/leader"}},
	}
	for i := range list {
		list[i].Comments = []string{"doc.go"}
	}
	return list
}

func edit(path string, change func(*lint.Package)) func([]lint.Package) []lint.Package {
	return func(list []lint.Package) []lint.Package {
		change(&list[slices.IndexFunc(list, func(p lint.Package) bool { return p.Path == path })])
		return list
	}
}

func imports(path string, more ...string) func([]lint.Package) []lint.Package {
	return edit(path, func(p *lint.Package) { p.Imports = append(p.Imports, more...) })
}

func outside(path string, more ...string) func([]lint.Package) []lint.Package {
	return edit(path, func(p *lint.Package) { p.Outside = append(p.Outside, more...) })
}

func add(path string) func([]lint.Package) []lint.Package {
	return func(list []lint.Package) []lint.Package {
		return append(list, lint.Package{Path: path, Comments: []string{"doc.go"}})
	}
}

func TestPageFindsPlantedViolations(t *testing.T) {
	p, err := lint.Parse(page, "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		rule  string
		plant func([]lint.Package) []lint.Package
		want  string // empty: nothing is found
	}{
		{"a sound set has no findings", imports("."), ""},
		{"every package has a line", add("internal/new"), "internal/new: is not in the deps block"},
		{
			"every line has a package", func(l []lint.Package) []lint.Package { return l[:len(l)-1] },
			"cmd/demo: stands in the deps block but does not exist",
		},
		{
			"imports go upwards only", imports("internal/wire", "client"),
			"internal/wire: imports client, which stands below",
		},
		{"the root imports nothing", imports(".", "gen/v1"), ".: imports gen/v1, which stands below"},
		{
			"an unknown package cannot be imported", imports("client", "x"),
			"client: imports x, which is not in the deps block",
		},
		{
			"a limited package keeps to its list", imports("client", "shapes"),
			"client: imports shapes, which is not among those",
		},
		{
			"processes do not know each other", imports("internal/agent", "internal/leader"),
			"internal/agent: imports internal/leader, another process",
		},
		{
			"a pure package imports pure ones", imports("internal/engine", "gen/v1"),
			"internal/engine: imports gen/v1, which is not pure",
		},
		{"a pure package has no network", outside("shapes", "net/http"), "shapes: is pure and imports net/http"},
		{"a pure package has no files", outside("shapes", "os"), "shapes: is pure and imports os"},
		{"a pure package has no locks", outside("shapes", "sync/atomic"), "shapes: is pure and imports sync/atomic"},
		{"a pure package does not log", outside("shapes", "log/slog"), "shapes: is pure and imports log/slog"},
		{"a pure package has no entropy", outside("shapes", "crypto/rand"), "shapes: is pure and imports crypto/rand"},
		{"names are not vague", add("gen/util"), `gen/util: "util" does not say`},
		{
			"a package explains itself", edit("client", func(p *lint.Package) { p.Comments = nil }),
			"client: has no package comment",
		},
		{
			"a package explains itself once",
			edit("client", func(p *lint.Package) { p.Comments = []string{"a.go", "b.go"} }),
			"client: has 2 package comments, in a.go, b.go",
		},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			found := p.Check(tc.plant(sound()))
			switch {
			case tc.want == "" && len(found) > 0:
				t.Errorf("found %v, want nothing", found)
			case tc.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0].String(), tc.want)):
				t.Errorf("found %v, want one that starts with %q", found, tc.want)
			}
		})
	}
}

func TestParseRefusesAPageThatCannotBeMeant(t *testing.T) {
	block := func(lines string) string { return "\n```deps\n" + lines + "```\n" }
	for _, tc := range []struct{ name, text, want string }{
		{"no block", "# A page\n", "no block"},
		{"no end", "\n```deps\na\n", "no end"},
		{"twice", block("a\nb\na\n"), "a stands twice"},
		{"unknown mark", block("a pure\n"), `unknown mark "pure"`},
		{"an allowance for what is not there", block("a ← b\n"), "a may import b, which does not stand above"},
		{"no package", block("← a\n"), "no package in the line"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := lint.Parse(tc.text, "demo"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestParseJoinsAnIndentedLineToTheLineAboveIt(t *testing.T) {
	p, err := lint.Parse("\n```deps\na\nb\nc ← a\n    b\nd\n```\n", "demo")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) != 4 || !slices.Equal(p.Lines[2].Only, []string{"a", "b"}) {
		t.Errorf("lines: %+v", p.Lines)
	}
}

func TestPureListsThePurePackages(t *testing.T) {
	p, err := lint.Parse(page, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Pure(), []string{".", "shapes", "internal/engine"}; !slices.Equal(got, want) {
		t.Errorf("pure: %v, want %v", got, want)
	}
}

// TestCheckPureFindsPlantedViolations compares what is found in testdata/impure with the comments
// there.
func TestCheckPureFindsPlantedViolations(t *testing.T) {
	src, err := lint.TypeCheck(".", "./testdata/impure")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range lint.CheckPure(src) {
		if found[f.Where] != "" {
			t.Errorf("two findings at %s", f.Where)
		}
		found[f.Where] = f.What
	}
	wants := 0
	for place, want := range wanted(src) {
		wants++
		if !strings.Contains(found[place], want) {
			t.Errorf("%s: found %q, want %q", place, found[place], want)
		}
		delete(found, place)
	}
	if wants < 11 {
		t.Errorf("only %d violations are planted", wants)
	}
	for place, what := range found {
		t.Errorf("%s: %s: found where nothing is wrong", place, what)
	}
}

var wantComment = regexp.MustCompile(`^// want "(.*)"$`)

func wanted(src lint.Source) map[string]string {
	wants := map[string]string{}
	for _, file := range src.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if m := wantComment.FindStringSubmatch(comment.Text); m != nil {
					wants[src.Place(comment.Pos())] = m[1]
				}
			}
		}
	}
	return wants
}

// TestListSeesThisPackage checks List on the one package that this test knows.
func TestListSeesThisPackage(t *testing.T) {
	module, packages, err := lint.List(".")
	if err != nil {
		t.Fatal(err)
	}
	if module != "github.com/plimsoll-dev/plimsoll" {
		t.Errorf("module %s", module)
	}
	i := slices.IndexFunc(packages, func(p lint.Package) bool { return p.Path == "internal/lint" })
	if i < 0 {
		t.Fatalf("internal/lint is not among %v", packages)
	}
	if got := packages[i].Comments; !slices.Equal(got, []string{"lint.go"}) {
		t.Errorf("package comments in %v, want lint.go", got)
	}
}

func TestCheckSleepsFindsTestsThatSleep(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("package a\n" + text)} }
	found, err := lint.CheckSleeps(fstest.MapFS{
		"a/plain_test.go":   file("import \"time\"\nfunc f() { time.Sleep(1) }"),
		"a/renamed_test.go": file("import clock \"time\"\nvar f = clock.Sleep"),
		"a/bubble_test.go": file(
			"import (\"time\"; \"testing/synctest\")\nfunc f() { time.Sleep(1); synctest.Wait() }",
		),
		"a/own_test.go": file(
			"import (\"time\"; \"a/testrun\")\nfunc f() { testrun.Bubble(nil, func() { time.Sleep(1) }) }",
		),
		"a/other_test.go":          file("import \"time\"\ntype x struct{ Sleep time.Duration }\nvar v = x{}.Sleep"),
		"a/program.go":             file("import \"time\"\nfunc f() { time.Sleep(1) }"),
		"a/rate_bench_test.go":     file("import \"time\"\nfunc f() { time.Sleep(1) }"),
		"a/testdata/plain_test.go": file("import \"time\"\nfunc f() { time.Sleep(1) }"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a/plain_test.go:3", "a/renamed_test.go:3"}; !slices.Equal(places(found), want) {
		t.Errorf("found %v, want findings at %v", found, want)
	}
}

func TestCheckServersFindsListenersPastTransport(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("package a\n" + text)} }
	found, err := lint.CheckServers(fstest.MapFS{
		"a/function.go":               file("import \"net/http\"\nfunc f() { http.ListenAndServe(\":1\", nil) }"),
		"a/renamed.go":                file("import web \"net/http\"\nvar s = web.Server{}"),
		"a/client.go":                 file("import \"net/http\"\nvar c = http.Client{}"),
		"a/plain_test.go":             file("import \"net/http\"\nvar s = http.Server{}"),
		"internal/transport/serve.go": file("import \"net/http\"\nvar s = http.Server{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a/function.go:3", "a/renamed.go:3"}; !slices.Equal(places(found), want) {
		t.Errorf("found %v, want findings at %v", found, want)
	}
}

func TestCheckServersFindsListenersThatChooseNoAccess(t *testing.T) {
	file := func(text string) *fstest.MapFile {
		return &fstest.MapFile{
			Data: []byte("package a\nimport \"github.com/plimsoll-dev/plimsoll/internal/transport\"\n" + text),
		}
	}
	found, err := lint.CheckServers(fstest.MapFS{
		"a/nothing.go":    file("var c = transport.ServeConfig{}"),
		"a/other.go":      file("var c = &transport.ServeConfig{Hosts: nil}"),
		"a/access.go":     file("var c = transport.ServeConfig{Access: nil}"),
		"a/plain_test.go": file("var c = transport.ServeConfig{}"),
		"a/another.go": {
			Data: []byte("package a\nimport transport \"example.org/transport\"\nvar c = transport.ServeConfig{}"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := places(found)
	slices.Sort(got)
	if want := []string{"a/nothing.go:3", "a/other.go:3"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want findings at %v", found, want)
	}
}

func TestCheckThreatsWantsATestForEachLine(t *testing.T) {
	root := fstest.MapFS{
		"a/a_test.go": {Data: []byte("package a\nfunc TestHere() {}\nfunc FuzzHere() {}")},
		"a/a.go":      {Data: []byte("package a\nfunc TestInTheProgram() {}")},
	}
	found, err := lint.CheckThreats(root, "page", strings.Join([]string{
		"| threat | test |", "|---|---|",
		"| proven | `TestHere`, `FuzzHere` |",
		"| not proven | by care |",
		"| forgotten | `TestHere`, `TestGone` |",
		"| of the program | `TestInTheProgram` |",
		"", "| TestNowhere | in another table |",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"page:4: names no test that proves it",
		"page:5: names TestGone, and there is no such test",
		"page:6: names TestInTheProgram, and there is no such test",
	}
	var got []string
	for _, f := range found {
		got = append(got, f.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if found, err = lint.CheckThreats(root, "page", "no table"); err != nil || len(found) != 1 {
		t.Errorf("a page without the table: %v, %v; one finding is wanted", found, err)
	}
}

// places returns the places of the findings.
func places(found []lint.Finding) (where []string) {
	for _, f := range found {
		where = append(where, f.Where)
	}
	return where
}
