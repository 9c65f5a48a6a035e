package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CheckSleeps reports the test files below root that call time.Sleep without testing/synctest,
// whose bubbles have a clock of their own. Folders named testdata are left out, and the files of
// benchmarks, which may sleep to keep to a rate.
func CheckSleeps(root fs.FS) ([]Finding, error) {
	return inFiles(
		root, "look for sleeps", sleeps, func(name string) bool {
			return strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_bench_test.go")
		},
	)
}

func sleeps(fset *token.FileSet, file *ast.File) []Finding {
	if importedAs(file, "testing/synctest") != "" {
		return nil
	}
	var found []Finding
	clock := importedAs(file, "time")
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Sleep" {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == clock {
			p := fset.Position(selector.Pos())
			found = append(found, finding(p.Filename+":"+strconv.Itoa(p.Line),
				"a test that sleeps is slow or flaky: wait for the thing itself, or sleep in a bubble of testing/synctest"))
		}
		return true
	})
	return found
}

// importedAs returns the name under which a file imports a package; empty if it does not.
func importedAs(file *ast.File, importPath string) string {
	i := slices.IndexFunc(
		file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(importPath) },
	)
	switch {
	case i < 0:
		return ""
	case file.Imports[i].Name != nil:
		return file.Imports[i].Name.Name
	}
	return path.Base(importPath)
}
