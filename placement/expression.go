package placement

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Expression is the text of a chain: the name of a stage, or a list of an operator and expressions.
// A pipe passes the output of each expression to the next, until no server is left. An or gives the
// same input to each expression, until one leaves a server.
//
//	e := placement.Pipe(placement.Named("setup"), placement.Or(placement.Named("reservoir"),
//		placement.Named("identity")))
type Expression struct {
	Name string // name of a stage or of a definition; empty: Op and List count
	Op   string // "pipe" or "or"
	List []Expression
}

// Pipe returns a pipe.
func Pipe(items ...Expression) Expression { return Expression{Op: "pipe", List: items} }

// Or returns an or.
func Or(items ...Expression) Expression { return Expression{Op: "or", List: items} }

// Named returns the expression of one stage or definition.
func Named(name string) Expression { return Expression{Name: name} }

// UnmarshalJSON reads a string or a list.
func (e *Expression) UnmarshalJSON(data []byte) error {
	var raw any
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("read a chain: %w", err)
	}
	read, err := ParseExpression(raw)
	if err == nil {
		*e = read
	}
	return err
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (e Expression) MarshalJSON() ([]byte, error) {
	if e.Name != "" {
		return json.Marshal(e.Name)
	}
	list := []any{e.Op}
	for _, item := range e.List {
		list = append(list, item)
	}
	return json.Marshal(list)
}

// String returns the expression as JSON without quotes.
func (e Expression) String() string {
	if e.Name != "" {
		return e.Name
	}
	parts := []string{e.Op}
	for _, item := range e.List {
		parts = append(parts, item.String())
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

const (
	maxDepth  = 32
	maxStages = 250 // a stage's place in the chain fits into a byte beside the other verdicts
)

// ParseExpression reads nested lists of strings, as a JSON or YAML reader gives them.
func ParseExpression(raw any) (Expression, error) { return parseExpression(raw, "chain", 0) }

func parseExpression(raw any, field string, depth int) (Expression, error) {
	if depth > maxDepth {
		return Expression{}, plimsoll.Invalid(field, "is nested more than %d deep", maxDepth)
	}
	switch v := raw.(type) {
	case string:
		if v == "" || v == "pipe" || v == "or" {
			return Expression{}, plimsoll.Invalid(field, "%q is not the name of a stage", v)
		}
		return Named(v), nil
	case []any:
		if len(v) == 0 {
			return Expression{}, plimsoll.Invalid(
				field, `is an empty list; begin it with "pipe" or "or" and name stages`,
			)
		}
		op, _ := v[0].(string)
		if op != "pipe" && op != "or" {
			return Expression{}, plimsoll.Invalid(field+"[0]", `is %v; a list begins with "pipe" or "or"`, v[0])
		}
		e := Expression{Op: op}
		for i, item := range v[1:] {
			sub, err := parseExpression(item, fmt.Sprintf("%s[%d]", field, i+1), depth+1)
			if err != nil {
				return Expression{}, err
			}
			e.List = append(e.List, sub)
		}
		return e, nil
	}
	return Expression{}, plimsoll.Invalid(field, "is %v; give the name of a stage or a list", raw)
}
