package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Source is a package with its parsed and type-checked files.
type Source struct {
	Fset  *token.FileSet
	Files []*ast.File
	Info  *types.Info
	Types *types.Package
}

// Place prints a position as file:line, without the folder.
func (s Source) Place(pos token.Pos) string {
	p := s.Fset.Position(pos)
	return filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
}

// CheckPure reports the impure parts of a package: goroutines, select, clocks, the global
// functions of math/rand, and results that depend on the order of a map.
//
// maps.Keys, maps.Values and maps.All are allowed as arguments of a function that ignores the
// order: slices.Sorted and its sisters, maps.Collect, maps.Insert. slices.Collect and
// slices.AppendSeq are allowed too if the next statement sorts the result.
func CheckPure(src Source) []Finding {
	c := checker{Source: src, unordered: map[*ast.Ident]bool{}}
	for _, file := range src.Files {
		ast.Inspect(file, c.visit)
	}
	return c.found
}

type checker struct {
	Source
	found     []Finding
	unordered map[*ast.Ident]bool // maps.Keys and the like, in a call that ignores the order
}

func (c *checker) add(pos token.Pos, what string) {
	c.found = append(c.found, finding(c.Place(pos), "%s", what))
}

func (c *checker) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.GoStmt:
		c.add(n.Pos(), "a pure package starts no goroutine")
	case *ast.SelectStmt:
		c.add(n.Pos(), "a pure package does not wait: select has no place in it")
	case *ast.RangeStmt:
		if isMap(c.Info.TypeOf(n.X)) {
			c.add(n.Pos(), "ranges over a map, whose order is random: range over slices.Sorted(maps.Keys(m))")
		}
	case *ast.BlockStmt:
		c.visitStatements(n.List)
	case *ast.CaseClause:
		c.visitStatements(n.Body)
	case *ast.CallExpr:
		c.visitCall(n)
	case *ast.Ident:
		c.visitUse(n)
	}
	return true
}

// visitStatements marks the map in x = slices.Collect(maps.Keys(m)) if the next statement is
// slices.Sort(x).
func (c *checker) visitStatements(list []ast.Stmt) {
	for i := range len(list) - 1 {
		assign, ok := list[i].(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 1 || len(assign.Rhs) != 1 {
			continue
		}
		collect, ok := assign.Rhs[0].(*ast.CallExpr)
		if !ok || !c.calls(collect, "slices", "Collect", "AppendSeq") {
			continue
		}
		next, ok := list[i+1].(*ast.ExprStmt)
		if !ok {
			continue
		}
		sort, ok := next.X.(*ast.CallExpr)
		if ok && c.calls(sort, "slices", "Sort", "SortFunc", "SortStableFunc") &&
			types.ExprString(sort.Args[0]) == types.ExprString(assign.Lhs[0]) {
			c.ignoreOrder(collect)
		}
	}
}

// visitCall visits a call before its arguments, so it can mark the arguments that the call makes
// harmless.
func (c *checker) visitCall(call *ast.CallExpr) {
	if c.calls(
		call, "slices", "Sorted", "SortedFunc", "SortedStableFunc",
	) || c.calls(call, "maps", "Collect", "Insert") {
		c.ignoreOrder(call)
	}
}

// ignoreOrder marks the arguments of a call as independent of their order.
func (c *checker) ignoreOrder(call *ast.CallExpr) {
	for _, arg := range call.Args {
		inner, ok := ast.Unparen(arg).(*ast.CallExpr)
		if !ok {
			continue
		}
		if id := callee(inner); id != nil {
			c.unordered[id] = true
		}
	}
}

// calls reports whether a call is to one of the named functions of a package.
func (c *checker) calls(call *ast.CallExpr, pkg string, names ...string) bool {
	id := callee(call)
	if id == nil {
		return false
	}
	p, name := c.global(id)
	return p == pkg && slices.Contains(names, name)
}

// callee returns the identifier of the called function, or nil if there is none.
func callee(call *ast.CallExpr) *ast.Ident {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr: // with type arguments
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.Ident:
		return f
	}
	return nil
}

// global returns the package and name of the package-level function that an identifier denotes.
func (c *checker) global(id *ast.Ident) (pkg, name string) {
	f, ok := c.Info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return "", ""
	}
	return f.Pkg().Path(), f.Name()
}

var clockFunctions = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func (c *checker) visitUse(id *ast.Ident) {
	pkg, name := c.global(id)
	switch pkg {
	case "time":
		if slices.Contains(clockFunctions, name) {
			c.add(id.Pos(), "time."+name+" reads the clock: take the time as an argument")
		}
	case "math/rand", "math/rand/v2":
		if !strings.HasPrefix(name, "New") {
			c.add(id.Pos(), "rand."+name+" is the global source: take a seeded one as an argument")
		}
	case "maps":
		if (name == "Keys" || name == "Values" || name == "All") && !c.unordered[id] {
			c.add(id.Pos(), "maps."+name+" gives a random order: put it into slices.Sorted")
		}
	}
}

// isMap reports whether a value of the type is a map, also behind a type parameter. A range
// requires all terms of a constraint to have one underlying type, so one term is enough.
func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := types.Unalias(t).(*types.TypeParam); ok {
		return constrainedToMap(p.Constraint().Underlying().(*types.Interface))
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

func constrainedToMap(constraint *types.Interface) bool {
	for embedded := range constraint.EmbeddedTypes() {
		if union, ok := types.Unalias(embedded).(*types.Union); ok {
			return isMap(union.Term(0).Type())
		}
		if inner, ok := embedded.Underlying().(*types.Interface); ok && constrainedToMap(inner) || isMap(embedded) {
			return true
		}
	}
	return false
}
