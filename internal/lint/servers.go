package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// serving are the names by which a program serves HTTP.
var serving = map[string][]string{
	"net/http":               {"Server", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"},
	"net/http/fcgi":          {"Serve"},
	"net/http/httptest":      {"Server", "NewServer", "NewTLSServer", "NewUnstartedServer"},
	"golang.org/x/net/http2": {"Server"},
}

// CheckServers reports the programs below root that serve HTTP past internal/transport, whose Serve refuses
// what pages in a browser send. Tests, and folders named testdata, are left out.
func CheckServers(root fs.FS) ([]Finding, error) {
	var found []Finding
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "internal/transport", entry.IsDir() && (entry.Name() == "testdata" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
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
		found = append(found, servers(fset, file)...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for servers: %w", err)
	}
	return found, nil
}

func servers(fset *token.FileSet, file *ast.File) []Finding {
	var found []Finding
	names := map[string][]string{} // by the name of the package in this file
	for path, forbidden := range serving {
		if name := importedAs(file, path); name != "" {
			names[name] = forbidden
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && slices.Contains(names[pkg.Name], selector.Sel.Name) {
			p := fset.Position(selector.Pos())
			found = append(found, finding(p.Filename+":"+strconv.Itoa(p.Line),
				"only transport.Serve refuses requests of foreign web pages: serve with it"))
		}
		return true
	})
	return found
}
