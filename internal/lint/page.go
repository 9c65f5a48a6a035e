package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Marks of a line in the deps block.
const (
	markPure    = "◆"
	markProcess = "●"
	markOnly    = "←"
)

// Line is one line of the deps block: a package, its marks, and its permitted imports.
type Line struct {
	Path    string   // within the module; the root is "."
	Pure    bool     // ◆
	Process bool     // ●: no other process may be imported
	Limited bool     // the line contains ←
	Only    []string // if Limited: all permitted imports of the module
}

// Page is the deps block. A package may import only packages above its own line.
type Page struct {
	Lines []Line
}

// continued matches a line break before an indented line, which continues the line above it.
var continued = regexp.MustCompile(`\n[ \t]+`)

// Parse reads the ```deps block out of a Markdown text. The root package is written as rootName. An
// indented line continues the line above it.
func Parse(markdown, rootName string) (Page, error) {
	_, rest, found := strings.Cut(markdown, "\n```deps\n")
	if !found {
		return Page{}, fmt.Errorf("no block that starts with ```deps")
	}
	block, _, found := strings.Cut(rest, "\n```")
	if !found {
		return Page{}, fmt.Errorf("the ```deps block has no end")
	}
	var page Page
	for text := range strings.SplitSeq(continued.ReplaceAllString(block, " "), "\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		line, err := parseLine(text, rootName)
		if err != nil {
			return Page{}, err
		}
		if page.index(line.Path) >= 0 {
			return Page{}, fmt.Errorf("%s stands twice in the ```deps block", line.Path)
		}
		for _, name := range line.Only {
			if page.index(name) < 0 {
				return Page{}, fmt.Errorf("%s may import %s, which does not stand above it", line.Path, name)
			}
		}
		page.Lines = append(page.Lines, line)
	}
	return page, nil
}

func parseLine(text, rootName string) (Line, error) {
	left, only, limited := strings.Cut(text, markOnly)
	words := strings.Fields(left)
	if len(words) == 0 {
		return Line{}, fmt.Errorf("no package in the line %q of the ```deps block", strings.TrimSpace(text))
	}
	line := Line{Path: relative(words[0], rootName), Limited: limited}
	for _, mark := range words[1:] {
		switch mark {
		case markPure:
			line.Pure = true
		case markProcess:
			line.Process = true
		default:
			return Line{}, fmt.Errorf("unknown mark %q behind %s in the ```deps block", mark, words[0])
		}
	}
	for _, word := range strings.Fields(only) {
		line.Only = append(line.Only, relative(word, rootName))
	}
	return line, nil
}

func relative(name, rootName string) string {
	if name == rootName {
		return "."
	}
	return name
}

// index returns the position of the line that covers a package: its own, or that of a tree written
// as dir/...
func (p Page) index(pkg string) int {
	own := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Path == pkg })
	if own >= 0 {
		return own
	}
	return slices.IndexFunc(p.Lines, func(l Line) bool {
		dir, tree := strings.CutSuffix(l.Path, "/...")
		return tree && (pkg == dir || strings.HasPrefix(pkg, dir+"/"))
	})
}

// Pure returns the paths of the pure packages, in the order of the page.
func (p Page) Pure() []string {
	var paths []string
	for _, l := range p.Lines {
		if l.Pure {
			paths = append(paths, l.Path)
		}
	}
	return paths
}

// Package is a package with the properties that the page restricts.
type Package struct {
	Path     string   // within the module; the root is "."
	Comments []string // files that hold a package comment
	Imports  []string // imports within the module, without those of tests
	Outside  []string // all other imports, such as "time"
}

// vagueNames say nothing about the purpose of a package.
var vagueNames = []string{
	"base", "common", "core", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils",
}

// Check reports every package that breaks a rule of the page, and every line of the page without a
// package.
func (p Page) Check(packages []Package) []Finding {
	var found []Finding
	used := make([]bool, len(p.Lines))
	for _, pkg := range packages {
		found = append(found, checkNames(pkg)...)
		own := p.index(pkg.Path)
		if own < 0 {
			found = append(
				found, finding(pkg.Path, "is not in the deps block: add a line below everything that it imports"),
			)
			continue
		}
		used[own] = true
		for _, imported := range pkg.Imports {
			if why := p.refuse(own, imported); why != "" {
				found = append(found, finding(pkg.Path, "imports %s, %s", imported, why))
			}
		}
		if p.Lines[own].Pure {
			found = append(found, checkPureImports(pkg)...)
		}
	}
	for i, l := range p.Lines {
		if !used[i] {
			found = append(found, finding(l.Path, "stands in the deps block but does not exist: take the line out"))
		}
	}
	return found
}

// refuse returns why the package of a line may not import another; empty if it may.
func (p Page) refuse(own int, imported string) string {
	line, other := p.Lines[own], p.index(imported)
	switch {
	case other < 0:
		return "which is not in the deps block"
	case other == own:
		return "" // both are in one tree
	case other > own:
		return "which stands below it in the deps block"
	case line.Process && p.Lines[other].Process:
		return "another process: processes speak through the wire only"
	case line.Pure && !p.Lines[other].Pure:
		return "which is not pure"
	case line.Limited && !slices.Contains(line.Only, p.Lines[other].Path):
		return "which is not among those that its line allows"
	}
	return ""
}

func checkNames(pkg Package) []Finding {
	var found []Finding
	if name := path.Base(pkg.Path); slices.Contains(vagueNames, name) {
		found = append(found, finding(pkg.Path, "%q does not say what the package gives: name it after that", name))
	}
	switch len(pkg.Comments) {
	case 0:
		found = append(
			found, finding(pkg.Path, "has no package comment: say what it gives, owns, does not do and guarantees"),
		)
	case 1:
	default:
		found = append(
			found,
			finding(
				pkg.Path, "has %d package comments, in %s: keep one", len(pkg.Comments),
				strings.Join(pkg.Comments, ", "),
			),
		)
	}
	return found
}

// checkPureImports refuses packages through which a pure package would do I/O, wait, or make
// random decisions.
func checkPureImports(pkg Package) []Finding {
	var found []Finding
	for _, imported := range pkg.Outside {
		top, _, _ := strings.Cut(imported, "/")
		switch {
		case imported == "net/netip": // values only
		case top == "net" || top == "os" || top == "syscall" || top == "plugin" || imported == "io/ioutil":
			found = append(found, finding(pkg.Path, "is pure and imports %s: leave I/O to its caller", imported))
		case top == "log" || top == "testing":
			found = append(found, finding(pkg.Path, "is pure and imports %s: return what is to be told", imported))
		case top == "sync":
			found = append(
				found, finding(pkg.Path, "is pure and imports %s: it has one owner, who guards it", imported),
			)
		case imported == "crypto/rand" || imported == "hash/maphash":
			found = append(
				found, finding(pkg.Path, "is pure and imports %s: take a seeded source as an argument", imported),
			)
		}
	}
	return found
}
