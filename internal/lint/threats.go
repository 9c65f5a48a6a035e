package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// testName matches the names of tests in the column of a table.
var testName = regexp.MustCompile(`\b(?:Test|Fuzz)\w+`)

// CheckThreats reports lines of the threat model without a test. The threat model is each table of
// the Markdown page whose last column is headed "test". That column of each line names at least
// one test below root. where is the page's path, for findings.
func CheckThreats(root fs.FS, where, markdown string) ([]Finding, error) {
	tests := map[string]bool{}
	if _, err := inFiles(root, "look for tests", func(_ *token.FileSet, file *ast.File) []Finding {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
		return nil
	}, func(name string) bool { return strings.HasSuffix(name, "_test.go") }); err != nil {
		return nil, err
	}
	var found []Finding
	within, lines := false, 0
	for i, line := range strings.Split(markdown, "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			within = false
			continue
		case last == "test":
			within = true
			continue
		case !within || strings.Trim(last, "-: ") == "":
			continue
		}
		lines++
		place := where + ":" + strconv.Itoa(i+1)
		names := testName.FindAllString(last, -1)
		if len(names) == 0 {
			found = append(found, finding(place, "names no test that proves it"))
		}
		for _, name := range names {
			if !tests[name] {
				found = append(found, finding(place, "names %s, and there is no such test", name))
			}
		}
	}
	if lines == 0 {
		found = append(found, finding(where, `has no table whose last column is headed "test"`))
	}
	return found, nil
}
