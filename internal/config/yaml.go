package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/plimsoll-dev/plimsoll"
)

// quantity is an amount as text. A plain number is printed without quotes.
type quantity string

// MarshalJSON prints a number as a number.
func (q quantity) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseUint(string(q), 10, 64); err == nil && strconv.FormatUint(n, 10) == string(q) {
		return []byte(q), nil
	}
	return json.Marshal(string(q))
}

type amounts map[string]quantity

func amountsOf(r plimsoll.Resources, yunikorn bool) amounts {
	if len(r) == 0 {
		return nil
	}
	a := amounts{}
	for _, name := range r.Names() {
		text := quantity(plimsoll.FormatQuantity(name, r[name]))
		if yunikorn && name == plimsoll.CPU {
			name = "vcore"
		}
		a[name] = text
	}
	return a
}

// flowWidth is the largest length of a list or mapping of plain values on one line.
const flowWidth = 100

// FormatYAML prints a value as YAML, with the field names and the order of encoding/json. Short
// lists and mappings of plain values are printed on one line.
func FormatYAML(v any) ([]byte, error) {
	tree, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	if text, ok := tree.flow(); ok {
		return []byte(text + "\n"), nil
	}
	return tree.block(nil, 0, false), nil
}

// treeOf returns a value as the tree that encoding/json writes.
func treeOf(v any) (*value, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("print as YAML: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tree, err := readJSON(dec)
	if err != nil {
		return nil, fmt.Errorf("print as YAML: %w", err)
	}
	return tree, nil
}

// readJSON reads one value written by encoding/json.
func readJSON(dec *json.Decoder) (*value, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return readComposite(dec, t)
	case string:
		return &value{text: t, quoted: true}, nil
	case json.Number:
		return &value{text: t.String()}, nil
	case bool:
		return &value{text: strconv.FormatBool(t)}, nil
	}
	return &value{kind: nullKind, text: "null"}, nil
}

func readComposite(dec *json.Decoder, open json.Delim) (*value, error) {
	v := &value{kind: listKind}
	if open == '{' {
		v.kind = mapKind
	}
	for dec.More() {
		name := ""
		if v.kind == mapKind {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ = key.(string) // a key of JSON is a string
		}
		x, err := readJSON(dec)
		if err != nil {
			return nil, err
		}
		if v.kind == mapKind {
			v.entries = append(v.entries, entry{name: name, value: x})
		} else {
			v.items = append(v.items, x)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return v, nil
}

// flow prints a value on one line; ok is false if it is too long.
func (v *value) flow() (text string, ok bool) {
	var parts []string
	switch v.kind {
	case listKind:
		for _, x := range v.items {
			if x.kind > nullKind || x.literal() {
				return "", false
			}
			parts = append(parts, x.scalar())
		}
		text = "[" + strings.Join(parts, ", ") + "]"
	case mapKind:
		for _, e := range v.entries {
			if e.value.kind > nullKind || e.value.literal() {
				return "", false
			}
			parts = append(parts, plain(e.name)+": "+e.value.scalar())
		}
		text = "{" + strings.Join(parts, ", ") + "}"
	default:
		return v.scalar(), !v.literal()
	}
	return text, len(text) <= flowWidth
}

func (v *value) scalar() string {
	if v.quoted {
		return plain(v.text)
	}
	return v.text
}

// literal reports whether v is a text of several lines that can be printed unchanged, below "|".
func (v *value) literal() bool {
	lines, ok := strings.CutSuffix(v.text, "\n")
	if !v.quoted || !ok || !strings.Contains(lines, "\n") || strings.HasPrefix(lines, " ") {
		return false
	}
	for line := range strings.SplitSeq(lines, "\n") {
		if strings.TrimRight(line, " ") != line || line == "" ||
			strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
	}
	return true
}

// block prints a list, a mapping or a literal text over several lines. With inline, the first line
// is already indented.
func (v *value) block(dst []byte, indent int, inline bool) []byte {
	if v.literal() {
		return v.appendLiteral(dst, indent)
	}
	pad := strings.Repeat("  ", indent)
	begin := func() {
		if !inline {
			dst = append(dst, pad...)
		}
		inline = false
	}
	for _, e := range v.entries {
		begin()
		dst = append(dst, plain(e.name)+":"...)
		if text, ok := e.value.flow(); ok &&
			!(indent == 0 && e.value.kind > nullKind && len(e.value.items)+len(e.value.entries) > 0) {
			dst = append(dst, " "+text+"\n"...)
			continue
		}
		if !e.value.literal() {
			dst = append(dst, '\n')
		} else {
			dst = append(dst, ' ')
		}
		dst = e.value.block(dst, indent+1, false)
	}
	for _, x := range v.items {
		begin()
		dst = append(dst, "- "...)
		if text, ok := x.flow(); ok && x.kind != mapKind {
			dst = append(dst, text+"\n"...)
			continue
		}
		if x.kind == mapKind && len(x.entries) == 0 {
			dst = append(dst, "{}\n"...)
			continue
		}
		dst = x.block(dst, indent+1, true)
	}
	return dst
}

func (v *value) appendLiteral(dst []byte, indent int) []byte {
	dst = append(dst, "|\n"...)
	for line := range strings.Lines(v.text) {
		dst = append(append(dst, strings.Repeat("  ", indent)...), line...)
	}
	return dst
}

// plainText matches texts that every YAML parser reads as a text without quotes.
var plainText = regexp.MustCompile(`^[A-Za-z/_][A-Za-z0-9/_.@+-]*$|^[0-9]+[A-Za-z][A-Za-z0-9]*$`)

// plain prints a text, quoted unless it matches plainText.
func plain(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if !plainText.MatchString(s) || numberLike(s) {
		return strconv.Quote(s)
	}
	return s
}

// numberLike reports whether a text starts with a digit and may be a number in some notation: 1e3,
// 0x10.
func numberLike(s string) bool {
	if s[0] < '0' || s[0] > '9' {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || s[0] == '0'
}
