package placement

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"github.com/plimsoll-dev/plimsoll"
)

// maxRule is the longest expression in bytes.
const maxRule = 4096

// Rule is a boolean expression over a server, such as `node.labels.zone == "a" && node.free.memory
// > 8e9`. It cannot loop, call out or change anything.
type Rule struct {
	Text    string
	program *vm.Program
	byClass bool // the rule reads neither the id nor the amounts left nor the instances
	reads   bool // the rule reads the amounts left or the instances
}

// oneLine puts the compiler's text on one line, without names of Go types.
var oneLine = strings.NewReplacer("\n", " ", "type placement.ruleNode", "the node")

// CompileRule checks an expression.
func CompileRule(text string) (*Rule, error) {
	if len(text) > maxRule {
		return nil, fmt.Errorf("the expression is %d bytes long; at most %d are possible", len(text), maxRule)
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the expression is not understood: %s", oneLine.Replace(err.Error()))
	}
	var seen members
	ast.Walk(&tree.Node, &seen) // before compilation, which writes ranges out
	if seen.loops {
		return nil, errors.New(
			"the expression counts through a range, or goes through a list within a list; ask for each value by its name",
		)
	}
	if seen.chains {
		return nil, errors.New(
			"the expression names a value by another name of its own, and so could grow without bounds; write the value out",
		)
	}
	var grown growth
	program, err := expr.Compile(
		text, expr.Env(map[string]any{"node": ruleNode{}}), expr.AsBool(), expr.MaxNodes(500), withoutBuiltins,
		expr.Patch(&grown),
	)
	if err != nil {
		return nil, fmt.Errorf("the expression is not understood: %s", oneLine.Replace(err.Error()))
	}
	if grown {
		return nil, errors.New(
			"the expression puts texts or lists together; + adds numbers only, and string takes a number, a flag or a text",
		)
	}
	r := &Rule{Text: text, program: program}
	seen.whole = seen.whole || seen.bare > 0
	r.reads = slices.Contains(seen.names, "free") || slices.Contains(seen.names, "instances") || seen.whole
	r.byClass = !r.reads && !slices.Contains(seen.names, "id")
	return r, nil
}

// builtins are the functions that a rule may call. Their results follow from the server, at a cost
// that its record bounds.
var builtins = []string{
	"all", "any", "none", "one", "count", "find", "filter", "len", "keys", "values", "abs", "ceil", "floor", "round",
	"int", "float", "string", "max", "min",
	"upper", "lower", "trim", "trimPrefix", "trimSuffix", "split", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix",
	"first", "last", "get",
}

// withoutBuiltins disables the functions that are not in the list, such as the clock.
func withoutBuiltins(c *conf.Config) {
	expr.DisableAllBuiltins()(c)
	for _, name := range builtins {
		expr.EnableBuiltin(name)(c)
	}
}

// members collects the members of node that an expression names, and its uses of node and loops.
type members struct {
	names []string
	whole bool // a member is named by an expression that is not a constant
	bare  int  // how often node is used other than for a member
	loops bool // the expression could run for longer than its length suggests

	chains bool // the value of one let uses the name of another let
}

// Visit is part of ast.Visitor.
func (m *members) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		if n.Value == "node" || n.Value == "$env" {
			m.bare++
		}
	case *ast.BinaryNode:
		m.loops = m.loops || n.Operator == ".."
	case *ast.PredicateNode:
		var inner predicates
		ast.Walk(&n.Node, &inner)
		m.loops = m.loops || inner > 0
	case *ast.VariableDeclaratorNode:
		var named usesOwnNames
		ast.Walk(&n.Value, &named)
		m.chains = m.chains || bool(named)
	}
	member, ok := (*n).(*ast.MemberNode)
	if !ok {
		return
	}
	base, ok := member.Node.(*ast.IdentifierNode)
	if !ok || base.Value != "node" {
		return
	}
	m.bare-- // the walk visits node before its member
	if name, ok := member.Property.(*ast.StringNode); ok {
		m.names = append(m.names, name.Value)
	} else {
		m.whole = true
	}
}

// usesOwnNames reports whether an expression uses a name that it has defined. Thirty names, each
// with a value made of two uses of the one before, would make a value a thousand million times as
// long.
type usesOwnNames bool

// Visit is part of ast.Visitor.
func (u *usesOwnNames) Visit(n *ast.Node) {
	if id, ok := (*n).(*ast.IdentifierNode); ok && id.Value != "node" && id.Value != "$env" {
		*u = true
	}
}

// growth reports whether a typed expression makes texts longer than its inputs.
type growth bool

// Visit is part of ast.Visitor.
func (g *growth) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.BinaryNode:
		if n.Operator == "+" && !(isNumber(n.Left) && isNumber(n.Right)) {
			*g = true
		}
	case *ast.BuiltinNode:
		if n.Name == "string" && len(n.Arguments) == 1 && !isPlain(n.Arguments[0]) {
			*g = true
		}
	}
}

func isNumber(n ast.Node) bool {
	t := n.Type()
	return t != nil && t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
}

func isPlain(n ast.Node) bool {
	t := n.Type()
	return isNumber(n) || t != nil && (t.Kind() == reflect.Bool || t.Kind() == reflect.String)
}

// predicates counts the predicates of an expression.
type predicates int

// Visit is part of ast.Visitor.
func (p *predicates) Visit(n *ast.Node) {
	if _, ok := (*n).(*ast.PredicateNode); ok {
		*p++
	}
}

// ruleCache is a rule with its results by class of servers.
type ruleCache struct {
	*Rule
	epoch    uint64
	verdicts []uint8 // by class: 0 not known, 1 true, 2 false
}

// matches evaluates the rule as Match does, but once for each class if the rule allows that.
func (r *ruleCache) matches(v *View) (bool, error) {
	if !r.byClass {
		return r.Match(v)
	}
	if r.epoch != v.fleet.epoch {
		r.epoch, r.verdicts = v.fleet.epoch, r.verdicts[:0]
	}
	for len(r.verdicts) < len(v.fleet.classes) {
		r.verdicts = append(r.verdicts, 0)
	}
	verdict := &r.verdicts[v.row.class]
	if *verdict == 0 {
		ok, err := r.Match(v)
		if err != nil {
			return false, err
		}
		*verdict = 2
		if ok {
			*verdict = 1
		}
	}
	return *verdict == 1, nil
}

// ruleNode is the view of a server that a rule reads.
type ruleNode struct {
	ID        string             `expr:"id"`
	Labels    map[string]string  `expr:"labels"`
	Traits    map[string]any     `expr:"traits"`
	Networks  map[string]bool    `expr:"networks"`
	Release   string             `expr:"release"`
	Platform  string             `expr:"platform"`
	Headnode  bool               `expr:"headnode"`
	Reservoir bool               `expr:"reservoir"`
	Capacity  plimsoll.Resources `expr:"capacity"`
	Free      map[string]int64   `expr:"free"`
	Instances int                `expr:"instances"`
}

var errNotBool = errors.New("it is not true or false")

// Match evaluates the rule for a server.
func (r *Rule) Match(v *View) (bool, error) {
	c := &v.class.record
	node := ruleNode{
		ID: v.ID(), Labels: c.Labels, Networks: c.Networks, Release: c.Release, Platform: c.Platform,
		Headnode:  c.Headnode,
		Reservoir: c.Reservoir, Capacity: c.Capacity, Instances: v.Count(), Traits: map[string]any{},
		Free: map[string]int64{},
	}
	for _, name := range sortedKeys(c.Traits) {
		if t := c.Traits[name]; t.Words == nil {
			node.Traits[name] = t.Flag
		} else if len(t.Words) == 1 {
			node.Traits[name] = t.Words[0]
		} else {
			node.Traits[name] = t.Words
		}
	}
	for i := range v.fleet.Names.Len() {
		if name := v.fleet.Names.Name(i); name != "" {
			node.Free[name] = v.Free(i)
		}
	}
	out, err := expr.Run(r.program, map[string]any{"node": node})
	if err != nil {
		return false, fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	ok, isBool := out.(bool)
	if !isBool {
		return false, errNotBool
	}
	return ok, nil
}
