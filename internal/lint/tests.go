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

// CheckSleeps reports the test files below root that call time.Sleep and have no bubble of
// testing/synctest, which has a clock of its own. Folders named testdata are left out. So are the
// files of benchmarks, which may sleep to keep to a rate.
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
	clock, bubble := importedAs(file, "time"), false
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch pkg, _ := selector.X.(*ast.Ident); {
		case pkg == nil:
		case pkg.Name == "testrun" && selector.Sel.Name == "Bubble":
			bubble = true
		case pkg.Name == clock && selector.Sel.Name == "Sleep":
			p := fset.Position(selector.Pos())
			found = append(found, finding(p.Filename+":"+strconv.Itoa(p.Line),
				"a test that sleeps is slow or flaky: wait for the thing itself, or sleep in a testrun.Bubble"))
		}
		return true
	})
	if bubble {
		return nil
	}
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
