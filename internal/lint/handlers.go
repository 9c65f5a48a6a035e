package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

const (
	servicesPath = "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	wirePath     = "github.com/plimsoll-dev/plimsoll/internal/wire"
)

// bounding lists the functions of internal/wire that make an option which bounds a message before
// it is decoded.
var bounding = []string{"Bounded", "BoundedPlain", "BoundedWeighed"}

// CheckHandlers reports the services below root that are served without a bound on their messages.
// The bound is an option of internal/wire, which counts a message's elements before it is decoded.
// The option is in the call, or in a variable that the same function has made of it. Tests, and
// folders named testdata or gen, are left out.
func CheckHandlers(root fs.FS) ([]Finding, error) {
	return inFiles(root, "look for services", handlers, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "gen/")
	})
}

func handlers(fset *token.FileSet, file *ast.File) []Finding {
	services, wire := importedAs(file, servicesPath), importedAs(file, wirePath)
	if services == "" {
		return nil
	}
	var found []Finding
	for _, decl := range file.Decls {
		bounded := boundedNames(decl, wire)
		ast.Inspect(decl, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || !isCallOf(call, services, func(name string) bool {
				return strings.HasPrefix(name, "New") && strings.HasSuffix(name, "ServiceHandler")
			}) {
				return true
			}
			if !slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return isBounded(arg, wire, bounded) }) {
				p := fset.Position(call.Pos())
				found = append(found, finding(p.Filename+":"+strconv.Itoa(p.Line),
					"a service without bounds on what it decodes: give it an option such as wire.Bounded"))
			}
			return true
		})
	}
	return found
}

// boundedNames returns the variables to which a declaration assigns a bounding option.
func boundedNames(decl ast.Decl, wire string) []string {
	var names []string
	ast.Inspect(decl, func(node ast.Node) bool {
		assign, ok := node.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != len(assign.Rhs) {
			return true
		}
		for i, value := range assign.Rhs {
			if name, ok := assign.Lhs[i].(*ast.Ident); ok && isBounded(value, wire, nil) {
				names = append(names, name.Name)
			}
		}
		return true
	})
	return names
}

// isBounded reports whether an expression contains a call of a bounding function, or a variable
// that holds its result.
func isBounded(e ast.Expr, wire string, names []string) bool {
	yes := false
	ast.Inspect(e, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			yes = yes || isCallOf(n, wire, func(name string) bool { return slices.Contains(bounding, name) })
		case *ast.Ident:
			yes = yes || slices.Contains(names, n.Name)
		}
		return true
	})
	return yes
}

func isCallOf(call *ast.CallExpr, pkg string, named func(string) bool) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || pkg == "" {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg && named(selector.Sel.Name)
}
