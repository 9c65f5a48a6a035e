package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// serving lists the functions and types by which a program serves HTTP.
var serving = map[string][]string{
	"net/http":               {"Server", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"},
	"net/http/fcgi":          {"Serve"},
	"net/http/httptest":      {"Server", "NewServer", "NewTLSServer", "NewUnstartedServer"},
	"golang.org/x/net/http2": {"Server"},
}

// CheckServers reports the programs below root that serve HTTP without internal/transport. Its
// Serve refuses requests of web pages and callers without a token. Calls of Serve without a choice
// of permitted callers are reported too. Tests, and folders named testdata, are left out.
func CheckServers(root fs.FS) ([]Finding, error) {
	return inFiles(root, "look for servers", servers, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/transport/")
	})
}

func servers(fset *token.FileSet, file *ast.File) []Finding {
	var found []Finding
	names := map[string][]string{} // keyed by the name of the package in this file
	for path, forbidden := range serving {
		if name := importedAs(file, path); name != "" {
			names[name] = forbidden
		}
	}
	transport := importedAs(file, transportPath)
	report := func(at ast.Node, message string) {
		p := fset.Position(at.Pos())
		found = append(found, finding(p.Filename+":"+strconv.Itoa(p.Line), "%s", message))
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if config, ok := node.(*ast.CompositeLit); ok && transport != "" &&
			isSelector(config.Type, transport, "ServeConfig") && !sets(config, "Access") {
			report(config, "a ServeConfig has to choose whom the listener answers: set Access, of a unix socket to nil")
		}
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && slices.Contains(names[pkg.Name], selector.Sel.Name) {
			report(selector, "only transport.Serve refuses requests of foreign web pages: serve with it")
		}
		return true
	})
	return found
}

// transportPath is the package whose listeners are checked.
const transportPath = "github.com/plimsoll-dev/plimsoll/internal/transport"

func isSelector(e ast.Expr, pkg, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	left, ok := selector.X.(*ast.Ident)
	return ok && left.Name == pkg
}

// sets reports whether a struct literal sets a field.
func sets(literal *ast.CompositeLit, field string) bool {
	return slices.ContainsFunc(literal.Elts, func(e ast.Expr) bool {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		key, ok := pair.Key.(*ast.Ident)
		return ok && key.Name == field
	})
}
