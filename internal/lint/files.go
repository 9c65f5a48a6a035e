package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
)

// inFiles returns the findings of look in the Go files below root whose paths wanted accepts.
// Hidden folders and those named testdata are left out. An error begins with the purpose.
func inFiles(
	root fs.FS, purpose string, look func(*token.FileSet, *ast.File) []Finding, wanted func(name string) bool,
) ([]Finding, error) {
	var found []Finding
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || !wanted(name):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		found = append(found, look(fset, file)...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", purpose, err)
	}
	return found, nil
}
