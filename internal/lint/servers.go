package lint

import (
	"go/ast"
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
	return inFiles(root, "look for servers", servers, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/transport/")
	})
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
