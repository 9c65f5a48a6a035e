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

// Rule is an expression over a server that is true or false, such as `node.labels.zone == "a" &&
// node.free.memory > 8e9`. It cannot loop, call out or change anything.
type Rule struct {
	Text    string
	program *vm.Program
	byClass bool // it does not look at the id, at what is free or at the instances
	reads   bool // it looks at what is free or at the instances
}

// forPeople puts what the compiler says on one line, without names of our types.
var forPeople = strings.NewReplacer("\n", " ", "type placement.ruleNode", "the node")

// CompileRule checks an expression.
func CompileRule(text string) (*Rule, error) {
	if len(text) > maxRule {
		return nil, fmt.Errorf("the expression is %d bytes long; at most %d are possible", len(text), maxRule)
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the expression is not understood: %s", forPeople.Replace(err.Error()))
	}
	var seen members
	ast.Walk(&tree.Node, &seen) // as it was written: the compiler writes ranges out
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
		return nil, fmt.Errorf("the expression is not understood: %s", forPeople.Replace(err.Error()))
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

// builtins are the functions that a rule may call: those whose answer follows from the server, at a
// cost that its record bounds.
var builtins = []string{
	"all", "any", "none", "one", "count", "find", "filter", "len", "keys", "values", "abs", "ceil", "floor", "round",
	"int", "float", "string", "max", "min",
	"upper", "lower", "trim", "trimPrefix", "trimSuffix", "split", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix",
	"first", "last", "get",
}

// withoutBuiltins takes away the functions that are not in the list, such as the clock.
func withoutBuiltins(c *conf.Config) {
	expr.DisableAllBuiltins()(c)
	for _, name := range builtins {
		expr.EnableBuiltin(name)(c)
	}
}

// members collects which members of the node an expression names, and what it does beside that.
type members struct {
	names []string
	whole bool // a member is named by something that is not a constant
	bare  int  // so often the node is used otherwise than for a member
	loops bool // it could run for longer than its length says

	chains bool // what a let names is made of what another one names
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
		var named names
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
	m.bare-- // the walk comes to the node before it comes to its member
	if name, ok := member.Property.(*ast.StringNode); ok {
		m.names = append(m.names, name.Value)
	} else {
		m.whole = true
	}
}

// names is whether an expression uses a name that it has given itself. With a value that is made of
// two others, thirty names would make it a thousand million times as long.
type names bool

// Visit is part of ast.Visitor.
func (u *names) Visit(n *ast.Node) {
	if id, ok := (*n).(*ast.IdentifierNode); ok && id.Value != "node" && id.Value != "$env" {
		*u = true
	}
}

// growth is whether an expression, of which the types are known, makes texts that are longer than
// those that it is given.
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

// ruleCache is a rule with what it said about classes of servers.
type ruleCache struct {
	*Rule
	epoch    uint64
	verdicts []uint8 // by class: 0 not known, 1 true, 2 false
}

// matches is Match, asked once for servers that are alike if the rule allows that.
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

// ruleNode is what a rule sees of a server.
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
