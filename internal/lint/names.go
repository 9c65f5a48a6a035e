package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	quotedText = regexp.MustCompile("`([^`]+)`")
	// goName matches a name such as handleDeltas, DeltaFIFO.Pop or session.go.
	goName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*$`)
	// testOf matches the name of a test.
	testOf = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)[A-Z0-9_]?\w*$`)
)

// codeColumns are the heads of the columns whose names CheckNames looks for in the code.
var codeColumns = []string{"code", "file", "where", "part", "at the leader", "at a relay"}

// names are those that the Go files below a folder declare.
type names struct {
	tests map[string]bool // functions of test files
	code  map[string]bool // of other files: packages, types, functions, methods, fields, constants, variables
	files map[string]bool // base names
}

// CheckNames reports names in pages on designs that do not exist. Of a whole page it looks for each
// test in back quotes. In a column of codeColumns, what stands in back quotes is a file, or a name
// that some Go file below root declares. The pages are paths below root.
func CheckNames(root fs.FS, pages []string) ([]Finding, error) {
	known, err := readNames(root)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, page := range pages {
		markdown, err := fs.ReadFile(root, page)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", page, err)
		}
		found = append(found, known.check(page, string(markdown))...)
	}
	return found, nil
}

// check reports the names in a page that do not exist. where is the page's path, for findings.
func (n *names) check(where, markdown string) (found []Finding) {
	var heads []string
	for i, line := range strings.Split(markdown, "\n") {
		place := where + ":" + strconv.Itoa(i+1)
		for _, m := range quotedText.FindAllStringSubmatch(line, -1) {
			if testOf.MatchString(m[1]) && !n.tests[m[1]] {
				found = append(found, finding(place, "names %s, and there is no such test", m[1]))
			}
		}
		if !strings.HasPrefix(line, "|") {
			heads = nil
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if heads == nil {
			for _, cell := range cells {
				heads = append(heads, strings.TrimSpace(cell))
			}
			continue
		}
		for k, cell := range cells {
			if k < len(heads) && slices.Contains(codeColumns, heads[k]) {
				found = append(found, n.missing(place, cell)...)
			}
		}
	}
	return found
}

// missing returns a finding for each name of a cell that does not exist.
func (n *names) missing(place, cell string) (found []Finding) {
	for _, m := range quotedText.FindAllStringSubmatch(cell, -1) {
		name := strings.TrimSuffix(m[1], "()")
		if testOf.MatchString(name) || !goName.MatchString(name) {
			continue
		}
		if strings.HasSuffix(name, ".go") {
			if !n.files[name] {
				found = append(found, finding(place, "names the file %s, which does not exist", name))
			}
			continue
		}
		for part := range strings.SplitSeq(name, ".") {
			if !n.code[part] {
				found = append(found, finding(place, "names %s, and nothing is called %s", m[1], part))
			}
		}
	}
	return found
}

// readNames reads the names that the Go files below a folder declare.
func readNames(root fs.FS) (*names, error) {
	n := &names{tests: map[string]bool{}, code: map[string]bool{}, files: map[string]bool{}}
	_, err := inFiles(root, "look for names", func(fset *token.FileSet, file *ast.File) []Finding {
		name := fset.Position(file.Package).Filename
		n.files[name[strings.LastIndex(name, "/")+1:]] = true
		if strings.HasSuffix(name, "_test.go") {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					n.tests[f.Name.Name] = true
				}
			}
			return nil
		}
		n.code[file.Name.Name] = true
		for _, d := range file.Decls {
			n.declare(d)
		}
		return nil
	}, func(name string) bool { return strings.HasSuffix(name, ".go") })
	return n, err
}

// declare notes the names of a declaration, with the fields and methods of its types.
func (n *names) declare(d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		n.code[f.Name.Name] = true
		return
	}
	ast.Inspect(d, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.TypeSpec:
			n.code[node.Name.Name] = true
		case *ast.ValueSpec:
			for _, name := range node.Names {
				n.code[name.Name] = true
			}
		case *ast.Field:
			for _, name := range node.Names {
				n.code[name.Name] = true
			}
		}
		return true
	})
}
