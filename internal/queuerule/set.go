package queuerule

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds on the rules of a configuration. Compile refuses more.
const (
	MaxRules      = plimsoll.MaxPlacementRules * plimsoll.MaxRuleDepth // with the rules that name parents
	MaxExpression = 1024                                               // bytes of a regular expression
	// maxProgram bounds the instructions of all regular expressions, each of 40 bytes.
	maxProgram = 100_000
)

// RecoveryQueue takes jobs with the tag application.create.force that no rule places.
const RecoveryQueue = plimsoll.RootQueue + ".@recovery@"

const forceTag = "application.create.force"

// Set is the rules and the access lists of one configuration. It is never changed. The zero value
// is a configuration without either.
type Set struct {
	rules []rule
	lists bool // a queue has an access list
}

// rule is a placement rule with its expressions compiled.
type rule struct {
	name   string // in lower case
	value  string // in lower case
	create bool
	filter *filter
	parent *rule
}

// filter says for whom a rule holds; nil: for everybody.
type filter struct {
	deny          bool
	users, groups names
}

// names is a list of names, or a regular expression.
type names struct {
	list       []string
	expression *regexp.Regexp
}

// Compile returns the rules and access lists of a configuration. An error names the rule and the
// field. A rule with an unknown name is no error: Place refuses the jobs that come to it.
func Compile(c *plimsoll.QueueConfig) (*Set, error) {
	s := &Set{lists: HasLists(c)}
	if c.Partition == nil {
		return s, nil
	}
	b := compiler{}
	for i := range c.Partition.Rules {
		r, err := b.rule(&c.Partition.Rules[i], fmt.Sprintf("placementrules[%d]", i))
		if err != nil {
			return nil, err
		}
		s.rules = append(s.rules, *r)
	}
	return s, nil
}

// HasLists reports whether a configured queue has an access list. Queues that drain are no longer
// configured, and do not count.
func HasLists(c *plimsoll.QueueConfig) bool {
	if c.Draining {
		return false
	}
	if c.SubmitAccess != nil || c.AdminAccess != nil {
		return true
	}
	for i := range c.Queues {
		if HasLists(&c.Queues[i]) {
			return true
		}
	}
	return false
}

// HasLists reports whether the configuration has access lists.
func (s *Set) HasLists() bool { return s.lists }

// Stated reports whether the configuration has rules.
func (s *Set) Stated() bool { return len(s.rules) > 0 }

// compiler counts what the rules of a configuration take.
type compiler struct{ rules, program int }

func (b *compiler) rule(p *plimsoll.PlacementRule, field string) (*rule, error) {
	if b.rules++; b.rules > MaxRules {
		return nil, plimsoll.Invalid(
			field, "is one more than the %d rules that are possible, parents included", MaxRules,
		)
	}
	r := &rule{
		name: strings.ToLower(p.Name), value: strings.ToLower(p.Value), create: p.Create,
	}
	if f := p.Filter; f != nil {
		r.filter = &filter{deny: f.Deny}
		var err error
		if r.filter.users, err = b.names(f.Users, field+".filter.users"); err != nil {
			return nil, err
		}
		if r.filter.groups, err = b.names(f.Groups, field+".filter.groups"); err != nil {
			return nil, err
		}
	}
	if p.Parent != nil {
		var err error
		if r.parent, err = b.rule(p.Parent, field+".parent"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// special are the characters that make a single entry a regular expression.
const special = `^$*+?()[{}|\`

func (b *compiler) names(list []string, field string) (names, error) {
	if !IsExpression(list) {
		return names{list: list}, nil
	}
	text := list[0]
	if len(text) > MaxExpression {
		return names{}, plimsoll.Invalid(
			field, "is an expression of %d bytes; at most %d are possible", len(text), MaxExpression,
		)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return names{}, plimsoll.Invalid(field, "%q is neither a name nor a regular expression: %v", text, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return names{}, plimsoll.Invalid(field, "%q is no regular expression: %v", text, err)
	}
	if b.program += len(program.Inst); b.program > maxProgram {
		return names{}, plimsoll.Invalid(field, "makes the expressions too large; give shorter repetitions or a list")
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		return names{}, plimsoll.Invalid(field, "%q is no regular expression: %v", text, err)
	}
	return names{expression: expression}, nil
}

// IsExpression reports whether a list of a filter is a regular expression: its only entry has a
// character that no name has.
func IsExpression(list []string) bool { return len(list) == 1 && strings.ContainsAny(list[0], special) }

func (n *names) has(name string) bool {
	if n.expression != nil {
		return n.expression.MatchString(name)
	}
	for _, one := range n.list {
		if one == name {
			return true
		}
	}
	return false
}

// admits reports whether a rule holds for an owner. As in YuniKorn, a filter without names holds
// for everybody if it allows, and for nobody if it denies.
func (f *filter) admits(job *Job) bool {
	if f == nil {
		return true
	}
	if f.users.empty() && f.groups.empty() {
		return !f.deny
	}
	named := f.users.has(job.Owner)
	for i := 0; i < len(job.Groups) && !named; i++ {
		named = f.groups.has(job.Groups[i])
	}
	return named != f.deny
}

func (n *names) empty() bool { return n.expression == nil && len(n.list) == 0 }

// Trusting returns the first thing in a configuration that holds for users, and so for the owner
// that a submit states: an access list with names, or a limit of users. It is empty if there is
// none.
func Trusting(c *plimsoll.QueueConfig) string { return trusting(c, "") }

func trusting(c *plimsoll.QueueConfig, above string) string {
	path := above + c.Name
	switch {
	case c.Draining:
		return ""
	case isNaming(c.SubmitAccess):
		return path + " has a submitacl with names"
	case isNaming(c.AdminAccess):
		return path + " has an adminacl with names"
	case len(c.Limits) > 0:
		return path + " has limits of users"
	}
	for i := range c.Queues {
		if what := trusting(&c.Queues[i], path+"."); what != "" {
			return what
		}
	}
	return ""
}

func isNaming(l *plimsoll.AccessList) bool { return l != nil && len(l.Users)+len(l.Groups) > 0 }
