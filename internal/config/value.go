package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds on a file. They are far above any sensible file, and keep a hostile one cheap.
const (
	MaxFileBytes = 4 << 20

	maxTokens  = 400_000
	maxValues  = 200_000 // with each alias counted as the values it stands for
	maxNesting = 64
	maxColumn  = 512   // column of a token that may open a block; bounds the nesting of blocks
	maxEntries = 5_000 // entries of one mapping; the YAML parser's time grows with their square
)

type kind uint8

const (
	scalarKind kind = iota
	nullKind
	listKind
	mapKind
)

// value is one value of a file, with its line. Aliases share the value that they refer to.
type value struct {
	kind    kind
	line    int
	text    string // of a scalar, in its original spelling: 1.10 stays 1.10
	quoted  bool   // a quoted scalar, which cannot be a number
	items   []*value
	entries []entry
	size    int // number of values in it, with itself and with aliases expanded
}

type entry struct {
	name  string
	line  int
	value *value
}

// kindName returns the value's kind in words, for messages.
func (v *value) kindName() string {
	switch v.kind {
	case nullKind:
		return "nothing"
	case listKind:
		return "a list"
	case mapKind:
		return "a mapping"
	}
	return fmt.Sprintf("%q", plimsoll.Shorten(v.text))
}

// parseValue reads a file of one document into a value. The error is a *Error with one problem.
func parseValue(name string, data []byte) (*value, error) {
	docs, err := parseDocuments(name, data)
	switch {
	case err != nil:
		return nil, err
	case len(docs) > 1:
		return nil, newError(
			name, []Problem{{Line: docs[1].line, Msg: "holds a second document; put each in a file of its own"}},
		)
	case len(docs) == 0 || docs[0].kind == nullKind:
		return nil, newError(name, []Problem{{
			Msg: "is empty; a job file has job: and groups:, a queue file has partitions:, a placement file has chain: or weights:",
		}})
	}
	return docs[0], nil
}

// parseDocuments reads a file into one value for each document that is not empty. The error is a
// *Error with one problem.
func parseDocuments(name string, data []byte) (docs []*value, err error) {
	fail := func(line int, format string, args ...any) error {
		return newError(name, []Problem{{Line: line, Msg: fmt.Sprintf(format, args...)}})
	}
	if len(data) > MaxFileBytes {
		return nil, fail(0, "is longer than %d bytes; split it, or make it smaller", MaxFileBytes)
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	if line, bad := notText(text); bad {
		return nil, fail(line, "is not text in UTF-8; write the file as YAML or JSON")
	}
	// The parser is a large third-party program. A panic of it is reported as an error of the
	// file.
	defer func() {
		if r := recover(); r != nil {
			docs, err = nil, fail(0, "cannot be read as YAML: the parser failed on it (%v)", r)
		}
	}()
	tokens := lexer.Tokenize(text)
	if line, msg := checkTokens(tokens); msg != "" {
		return nil, fail(line, "%s", msg)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, fail(syntaxError(err))
	}
	c := converter{}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		c.anchors = map[string]*value{}
		v, err := c.convert(doc.Body, 0)
		if err != nil {
			return nil, fail(c.line, "%s", err)
		}
		docs = append(docs, v)
	}
	return docs, nil
}

// notText finds the first line with bytes that do not occur in a text file.
func notText(text string) (line int, bad bool) {
	line = 1
	for i, r := range text {
		switch {
		case r == '\n':
			line++
		case r == '\t' || r == '\r':
		case r < ' ', r == 0x7f:
			return line, true
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
				return line, true
			}
		}
	}
	return 0, false
}

// checkTokens refuses files that would take the recursive parser too deep or too long. It runs
// before the parser.
func checkTokens(tokens token.Tokens) (line int, msg string) {
	if len(tokens) > maxTokens {
		return 0, fmt.Sprintf("has more than %d words and signs; make it smaller", maxTokens)
	}
	flow := 0
	var open []block // block mappings that are open here, outermost first
	for i, t := range tokens {
		line, column := t.Position.Line, t.Position.Column
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.InvalidType:
			if strings.Contains(t.Error, "'\t'") {
				return line, "has a tab where YAML wants spaces; indent with spaces"
			}
			return line, "cannot be read as YAML: " + firstLine(t.Error)
		}
		if flow > maxNesting {
			return line, fmt.Sprintf("is nested deeper than %d levels", maxNesting)
		}
		if flow > 0 || !opensBlock(t.Type) {
			continue
		}
		if column > maxColumn {
			return line, fmt.Sprintf(
				"has a key or list entry beyond column %d; indent less, or write shorter keys", maxColumn,
			)
		}
		if t.Type == token.MappingValueType && i > 0 {
			column = tokens[i-1].Position.Column
		}
		for len(open) > 0 && open[len(open)-1].column > column {
			open = open[:len(open)-1]
		}
		if t.Type != token.MappingValueType {
			continue
		}
		if len(open) == 0 || open[len(open)-1].column < column {
			open = append(open, block{column: column})
		}
		if top := &open[len(open)-1]; top.entries < maxEntries {
			top.entries++
		} else {
			return line, fmt.Sprintf("has a mapping of more than %d entries", maxEntries)
		}
	}
	return 0, ""
}

type block struct{ column, entries int }

func opensBlock(t token.Type) bool {
	switch t {
	case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
		return true
	}
	return false
}

// syntaxError splits the parser's error into line and message. The error's own text quotes the
// source over many lines.
func syntaxError(err error) (line int, format string, msg string) {
	var y yaml.Error
	if !errors.As(err, &y) {
		return 0, "cannot be read as YAML: %s", firstLine(err.Error())
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return line, "cannot be read as YAML: %s", firstLine(y.GetMessage())
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// converter turns the parser's tree into values.
type converter struct {
	anchors map[string]*value // Invariant: only complete values, so no value contains itself
	values  int
	line    int // line of the node that is being converted, for errors
}

func (c *converter) convert(n ast.Node, depth int) (*value, error) {
	if n == nil {
		return nil, errors.New("cannot be read as YAML: a value is missing")
	}
	c.line = lineOf(n)
	if depth > maxNesting {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxNesting)
	}
	v := &value{line: c.line, size: 1}
	var err error
	switch n := n.(type) {
	case *ast.MappingNode:
		v.kind = mapKind
		err = c.mapping(v, n.Values, depth)
	case *ast.MappingValueNode:
		v.kind = mapKind
		err = c.mapping(v, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		v.kind = listKind
		for _, item := range n.Values {
			var x *value
			if x, err = c.convert(item, depth+1); err != nil {
				break
			}
			v.items, v.size = append(v.items, x), v.size+x.size
		}
	case *ast.AnchorNode:
		if v, err = c.convert(n.Value, depth+1); err == nil {
			c.anchors[n.Name.GetToken().Value] = v
		}
		return v, err
	case *ast.AliasNode:
		return c.alias(n)
	case *ast.TagNode:
		return nil, fmt.Errorf("has the tag %q; tags are not supported: remove it", plimsoll.Shorten(n.Start.Value))
	default:
		err = scalar(v, n)
	}
	if err != nil {
		return nil, err
	}
	return v, c.count(1)
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func (c *converter) count(n int) error {
	if c.values += n; c.values > maxValues {
		return fmt.Errorf(
			"holds more than %d values (an alias counts as what it stands for); make it smaller", maxValues,
		)
	}
	return nil
}

func (c *converter) alias(n *ast.AliasNode) (*value, error) {
	name := n.Value.GetToken().Value
	v := c.anchors[name]
	if v == nil {
		return nil, fmt.Errorf("refers to *%[1]s, but no &%[1]s stands before it", plimsoll.Shorten(name))
	}
	return v, c.count(v.size)
}

func (c *converter) mapping(v *value, entries []*ast.MappingValueNode, depth int) error {
	for _, e := range entries {
		key := &value{}
		c.line = lineOf(e.Key)
		if e.Key.IsMergeKey() {
			return errors.New("has a merge key (<<), which is not supported; write the fields out")
		}
		if err := scalar(key, e.Key); err != nil || key.kind != scalarKind {
			return errors.New("has a key that is not a plain word")
		}
		line := c.line
		x, err := c.convert(e.Value, depth+1)
		if err != nil {
			return err
		}
		if x.kind == nullKind {
			x.line = line
		}
		v.entries, v.size = append(v.entries, entry{name: key.text, line: line, value: x}), v.size+x.size
	}
	return nil
}

// scalar fills v with a scalar in its original spelling: 1.10 stays 1.10 if a text is wanted.
func scalar(v *value, n ast.Node) error {
	switch n := n.(type) {
	case *ast.StringNode:
		v.text, v.quoted = n.Value, n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		v.text, v.quoted = n.Value.Value, true
	case *ast.NullNode:
		v.kind = nullKind
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.text = n.GetToken().Value
	default:
		return fmt.Errorf("holds something that is neither a text, a list nor a mapping (%s)", n.Type())
	}
	return nil
}
