package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// decoder collects the problems found while values are read, and remembers the line of each field.
type decoder struct {
	name     string
	problems []Problem
	lines    map[string]int // by field; for errors of the validation that follows
}

func newDecoder(name string, top *value) *decoder {
	return &decoder{name: name, lines: map[string]int{"": top.line}}
}

func (d *decoder) problem(line int, field, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: line, Field: field, Msg: fmt.Sprintf(format, args...)})
}

// err returns the problems found, or nil.
func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return newError(d.name, d.problems)
}

// invalid adds the error of a validation. Its line is that of the named field or, failing that, of
// the nearest field around it.
func (d *decoder) invalid(err error) {
	if err == nil {
		return
	}
	var e *plimsoll.Error
	if !asError(err, &e) {
		d.problem(0, "", "%s", err)
		return
	}
	d.problem(d.lineOf(e.Field), e.Field, "%s", e.Msg)
}

// lineOf falls back to the enclosing field, and at last to the file's first line.
func (d *decoder) lineOf(field string) int {
	for {
		if line, ok := d.lines[field]; ok || field == "" {
			return line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

// field is a possible field of a mapping, with the function that reads its value.
type field struct {
	name string
	read func(v *value, path string)
}

// fields reads a mapping. path is put before the names of its fields; known lists the possible
// fields.
func (d *decoder) fields(v *value, path string, known ...field) {
	d.pairs(v, path, func(e entry, at string) {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == e.name })
		if i < 0 {
			d.problem(e.line, at, "unknown field; %s", suggest(e.name, known))
			return
		}
		known[i].read(e.value, at)
	})
}

// pairs reads a mapping with arbitrary names.
func (d *decoder) pairs(v *value, path string, read func(e entry, path string)) {
	if !d.isMapping(v, path) {
		return
	}
	seen := make(map[string]int, len(v.entries))
	for _, e := range v.entries {
		at := join(path, e.name)
		if first, twice := seen[e.name]; twice {
			d.problem(e.line, at, "stands twice, first on line %d; remove one", first)
			continue
		}
		seen[e.name] = e.line
		d.lines[at] = e.line
		read(e, at)
	}
}

func (d *decoder) isMapping(v *value, path string) bool {
	if v.kind != mapKind {
		d.problem(v.line, path, "is %s; a mapping of names to values is expected", v.kindName())
	}
	return v.kind == mapKind
}

// list reads each item of a list.
func (d *decoder) list(v *value, path string, read func(v *value, path string)) {
	if v.kind != listKind {
		d.problem(v.line, path, "is %s; a list is expected", v.kindName())
		return
	}
	for i, item := range v.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.line
		read(item, at)
	}
}

// text reads a text. A number or a boolean keeps its spelling.
func (d *decoder) text(into *string) func(v *value, path string) {
	return func(v *value, path string) {
		if v.kind != scalarKind {
			d.problem(v.line, path, "is %s; a text is expected", v.kindName())
			return
		}
		*into = v.text
	}
}

// command reads a list of texts. A single text is refused, because only a shell could split it.
func (d *decoder) command(into *[]string) func(v *value, path string) {
	return func(v *value, path string) {
		if v.kind != listKind {
			d.problem(
				v.line, path,
				`is %s; a list of the program and its arguments is expected, such as ["sh", "-c", "echo hello"]`,
				v.kindName(),
			)
			return
		}
		d.list(v, path, func(v *value, path string) {
			var s string
			d.text(&s)(v, path)
			*into = append(*into, s)
		})
	}
}

func (d *decoder) textMap(into *map[string]string) func(v *value, path string) {
	return func(v *value, path string) {
		m := map[string]string{}
		d.pairs(v, path, func(e entry, path string) {
			var s string
			d.text(&s)(e.value, path)
			m[e.name] = s
		})
		if len(m) > 0 {
			*into = m
		}
	}
}

func (d *decoder) number(into *int32) func(v *value, path string) {
	return func(v *value, path string) {
		n, err := strconv.ParseInt(v.text, 10, 32)
		if v.kind != scalarKind || v.quoted || err != nil {
			d.problem(v.line, path, "is %s; a whole number is expected, at most %d", v.kindName(), int32(1<<31-1))
			return
		}
		*into = int32(n)
	}
}

func (d *decoder) numbers(into *[]int32) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var n int32
			d.number(&n)(v, path)
			*into = append(*into, n)
		})
	}
}

func (d *decoder) boolean(into *bool) func(v *value, path string) {
	return func(v *value, path string) {
		if v.kind != scalarKind || v.quoted || v.text != "true" && v.text != "false" {
			d.problem(v.line, path, "is %s; true or false is expected", v.kindName())
			return
		}
		*into = v.text == "true"
	}
}

func (d *decoder) duration(into *time.Duration) func(v *value, path string) {
	return func(v *value, path string) {
		t, err := time.ParseDuration(v.text)
		switch {
		case v.kind != scalarKind || err != nil:
			d.problem(v.line, path, "is %s; a duration with its unit is expected, such as 90s, 10m or 1h30m", v.kindName())
		case t < 0:
			d.problem(v.line, path, "is negative; give a duration such as 10m")
		default:
			*into = t
		}
	}
}

// quantity reads an amount of a resource, in the resource's unit.
func (d *decoder) quantity(resource string, into *int64) func(v *value, path string) {
	return func(v *value, path string) {
		if v.kind != scalarKind {
			d.problem(v.line, path, "is %s; an amount is expected, such as 500m of cpu or 64Mi of memory", v.kindName())
			return
		}
		n, err := plimsoll.ParseQuantity(resource, v.text)
		if err != nil {
			d.problem(v.line, path, "%s", err)
			return
		}
		*into = n
	}
}

func join(path, name string) string {
	if len(name) > 80 || strings.ContainsAny(name, " .[]\n\t") {
		name = strconv.Quote(plimsoll.Shorten(name))
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// synonyms are words of other systems, with the field of Plimsoll that they mean.
var synonyms = map[string]string{
	"id": "job", "name": "job", "user": "owner", "tasks": "groups", "taskGroups": "groups", "task_groups": "groups",
	"cmd":  "command",
	"args": "command", "script": "command", "replicas": "count", "instances": "count", "size": "count",
	"environment": "env",
	"vars":        "env", "limits": "resources", "requests": "resources", "retries": "retry", "restart": "retry",
	"timeout":  "maxRuntime",
	"deadline": "maxRuntime", "kind": "policy", "attempts": "limit", "cwd": "workDir", "dir": "workDir",
	"directory": "workDir",
	"group":     "userGroup", "gracePeriod": "killGrace", "minimum": "guaranteed", "min": "guaranteed",
	"maxjobs":  "maxapplications",
	"affinity": "near", "antiAffinity": "far", "topologySpread": "spread", "topologySpreadConstraints": "spread",
	"topologyKey": "by",
	"attribute":   "by", "key": "by", "nodeNames": "nodes", "hosts": "nodes", "nodeName": "nodes",
	"expression":    "where",
	"filter":        "where",
	"overprovision": "class", "qosClass": "class", "threshold": "waterline", "value": "waterline",
	"avoidanceThreshold": "triggerAfter",
	"restoreThreshold":   "restoreAfter", "actionName": "action", "scopeSelector": "match", "matchExpressions": "match",
	"allowedActions": "allowed", "labelSelector": "labels", "coolDownSeconds": "coolDown", "metricRule": "metric",
	"eviction":                      "evict",
	"terminationGracePeriodSeconds": "grace", "gracePeriodSeconds": "grace", "stepCPURatio": "step",
	"minCPURatio": "minRatio",
	"placement":   "constraints", "nodeSelector": "constraints", "tags": "traits", "nics": "networks",
}

// suggest names the field that was probably meant or, failing that, all possible ones.
func suggest(name string, known []field) string {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	if best := plimsoll.Nearest(name, names); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if meant := synonyms[name]; slices.Contains(names, meant) {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	return "possible are " + strings.Join(names, ", ")
}
