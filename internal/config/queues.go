package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

const partitionName = "default"

func asError(err error, into **plimsoll.Error) bool { return errors.As(err, into) }

// ParseQueues reads a queue file in YuniKorn's schema into the queue root. name is for the
// messages. As in YuniKorn, names of queues are lower-cased and vcore is cpu. If several queues
// are at the top, they are put under root. The package comment lists the refused parts of
// YuniKorn's schema. The error is a *Error; its fields are paths of queues, such as
// root.batch.resources.max.memory.
func ParseQueues(name string, data []byte) (plimsoll.QueueConfig, error) {
	v, err := parseValue(name, data)
	if err != nil {
		return plimsoll.QueueConfig{}, err
	}
	d := newDecoder(name, v)
	var root plimsoll.QueueConfig
	found := false
	d.fields(v, "", field{"partitions", func(v *value, path string) {
		if d.list(v, path, func(*value, string) {}); len(v.items) > 0 {
			found = true
			root = d.partition(v.items[0], path+"[0]")
		}
		if len(v.items) > 1 {
			d.problem(
				v.items[1].line, path+"[1]", "is a second partition, which is not supported; keep one, named %q",
				partitionName,
			)
		}
	}})
	if !found && len(d.problems) == 0 {
		d.problem(v.line, "partitions", "is empty; write one partition named %q with its queues", partitionName)
	}
	if len(d.problems) == 0 {
		d.invalid(root.Validate())
	}
	if err := d.err(); err != nil {
		return plimsoll.QueueConfig{}, err
	}
	return root, nil
}

func (d *decoder) partition(v *value, path string) plimsoll.QueueConfig {
	name := partitionName
	var root plimsoll.QueueConfig
	found := false
	d.fields(v, path,
		field{"name", d.text(&name)},
		field{"queues", func(v *value, path string) {
			found = true
			root = d.top(v, path)
		}},
		field{"placementrules", d.unsupported("a job names its queue, and the queue must exist", isProvidedRule)},
		field{"limits", d.unsupported("the number of jobs of a queue is limited by maxapplications", isEmpty)},
		field{"preemption", d.unsupported("no running task is stopped to make room for another", isOff)},
		field{"nodesortpolicy", d.unsupported("nodes are looked at in random order", isEmpty)},
	)
	if !strings.EqualFold(name, partitionName) {
		d.problem(
			d.lineOf(path+".name"), path+".name", "is %q; the one partition that is supported is named %q",
			shorten(name), partitionName,
		)
	}
	if !found && v.kind == mapKind {
		d.problem(v.line, path+".queues", "is missing; list the queues of the partition")
	}
	return root
}

// top reads the list at the top of the partition: root alone, or queues under an implicit root.
func (d *decoder) top(v *value, path string) plimsoll.QueueConfig {
	if v.kind == listKind && len(v.items) == 1 && queueName(v.items[0]) == plimsoll.RootQueue {
		root := d.queue(v.items[0], plimsoll.RootQueue)
		root.Parent = true
		return root
	}
	root := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
	d.list(v, path, func(v *value, path string) {
		if queueName(v) == plimsoll.RootQueue {
			d.problem(v.line, path, "is the queue root beside others; put the others into its queues")
			return
		}
		root.Queues = append(root.Queues, d.queue(v, queuePath(plimsoll.RootQueue, v, path)))
	})
	return root
}

// queueName looks ahead for the name of a queue, because the fields before it may be wrong.
func queueName(v *value) string {
	for _, e := range v.entries {
		if e.name == "name" && e.value.kind == scalarKind {
			return strings.ToLower(e.value.text)
		}
	}
	return ""
}

func queuePath(parent string, v *value, place string) string {
	if name := queueName(v); name != "" {
		return join(parent, name)
	}
	return place
}

func (d *decoder) queue(v *value, path string) plimsoll.QueueConfig {
	var q plimsoll.QueueConfig
	parent := false
	d.lines[path] = v.line
	d.fields(v, path,
		field{"name", func(v *value, path string) {
			d.text(&q.Name)(v, path)
			q.Name = strings.ToLower(q.Name)
		}},
		field{"parent", d.boolean(&parent)},
		field{"resources", func(v *value, path string) {
			d.fields(v, path,
				field{"guaranteed", func(v *value, path string) { q.Guaranteed = d.queueResources(v, path) }},
				field{"max", func(v *value, path string) { q.Max = d.queueResources(v, path) }},
			)
		}},
		field{"maxapplications", d.number(&q.MaxJobs)},
		field{"maxtasks", d.number(&q.MaxTasks)},
		field{"queues", func(v *value, _ string) {
			d.list(v, path+".queues", func(v *value, place string) {
				q.Queues = append(q.Queues, d.queue(v, queuePath(path, v, place)))
			})
		}},
		field{"properties", d.properties},
		field{"submitacl", d.unsupported("everybody may submit to every queue; write \"*\" or remove it", isEverybody)},
		field{"adminacl", d.unsupported("everybody may administer every queue; write \"*\" or remove it", isEverybody)},
		field{"childtemplate", d.unsupported("queues are not created on the fly", isEmpty)},
		field{"limits", d.unsupported("the number of jobs of a queue is limited by maxapplications", isEmpty)},
	)
	if q.Name == "" && v.kind == mapKind {
		d.problem(v.line, path+".name", "is missing; give the queue a name")
	}
	if q.Name != "" &&
		(strings.Contains(q.Name, ".") || plimsoll.ValidateQueuePath("", join(plimsoll.RootQueue, q.Name)) != nil) {
		d.problem(d.lineOf(path+".name"), path+".name",
			"%q is not a possible queue name: use 1 to 64 letters, digits and _ : # / @ -", shorten(q.Name))
	}
	q.Parent = parent || len(q.Queues) > 0
	return q
}

// queueResources reads amounts under YuniKorn's names: vcore is cpu.
func (d *decoder) queueResources(v *value, path string) plimsoll.Resources {
	r := plimsoll.Resources{}
	d.pairs(v, path, func(e entry, at string) {
		name := e.name
		if name == "vcore" {
			name = plimsoll.CPU
		} else if meant := misnamed(name); meant != "" {
			d.problem(e.line, at, "unknown resource; did you mean %q?", meant)
			return
		}
		if _, twice := r[name]; twice {
			d.problem(e.line, at, "cpu stands twice, as cpu and as vcore; remove one")
			return
		}
		d.lines[path+"."+name] = e.line
		var n int64
		d.quantity(name, &n)(e.value, at)
		r[name] = n
	})
	if len(r) == 0 {
		return nil
	}
	return r
}

func (d *decoder) properties(v *value, path string) {
	if isEmpty(v) {
		return
	}
	d.pairs(v, path, func(e entry, path string) {
		if e.name == "application.sort.policy" && strings.EqualFold(e.value.text, "fifo") {
			return
		}
		d.problem(
			e.line, path, "not supported yet: jobs of a leaf are served in the order in which they came; remove it",
		)
	})
}

// unsupported refuses a field of YuniKorn's that Plimsoll does not support, unless its value
// describes Plimsoll's own behaviour.
func (d *decoder) unsupported(instead string, harmless func(v *value) bool) func(v *value, path string) {
	return func(v *value, path string) {
		if !harmless(v) {
			d.problem(v.line, path, "not supported yet: %s", instead)
		}
	}
}

func isEmpty(v *value) bool {
	return v.kind == nullKind || v.kind == mapKind && len(v.entries) == 0 || v.kind == listKind && len(v.items) == 0
}

func isEverybody(v *value) bool {
	text := strings.TrimSpace(v.text)
	return v.kind == nullKind || v.kind == scalarKind && (text == "*" || text == "")
}

func isOff(v *value) bool {
	return isEmpty(v) || len(v.entries) == 1 && v.entries[0].name == "enabled" && v.entries[0].value.text == "false"
}

func isProvidedRule(v *value) bool {
	if isEmpty(v) {
		return true
	}
	if len(v.items) != 1 || v.items[0].kind != mapKind {
		return false
	}
	name := ""
	for _, e := range v.items[0].entries {
		switch {
		case e.name == "name":
			name = e.value.text
		case e.name == "create" && e.value.text == "false":
		default:
			return false
		}
	}
	return name == "provided"
}

// queueFile is the printed form of a queue file.
type queueFile struct {
	Partitions []partitionEntry `json:"partitions"`
}

type partitionEntry struct {
	Name   string       `json:"name"`
	Queues []queueEntry `json:"queues"`
}

type queueEntry struct {
	Name            string          `json:"name"`
	Parent          bool            `json:"parent,omitempty"`
	Resources       *queueResources `json:"resources,omitempty"`
	MaxApplications int32           `json:"maxapplications,omitempty"`
	MaxTasks        int32           `json:"maxtasks,omitempty"`
	Queues          []queueEntry    `json:"queues,omitempty"`
}

// queueResources has amounts or, for YuniKorn's programs, texts.
type queueResources struct {
	Guaranteed any `json:"guaranteed,omitempty"`
	Max        any `json:"max,omitempty"`
}

// FormatQueues prints the queue root as a queue file in YAML. ParseQueues reads it back to the
// same queues.
func FormatQueues(root *plimsoll.QueueConfig) ([]byte, error) {
	return FormatYAML(QueueFile(root))
}

// QueueFile returns the queue root as a value that encoding/json and FormatYAML print as a queue
// file.
func QueueFile(root *plimsoll.QueueConfig) any { return queueFileOf(root, asAmounts) }

// QueueFileForYuniKorn is QueueFile with each amount as a text. YuniKorn's programs read no number
// there.
func QueueFileForYuniKorn(root *plimsoll.QueueConfig) any { return queueFileOf(root, asTexts) }

func asAmounts(r plimsoll.Resources) any {
	if len(r) == 0 {
		return nil
	}
	return amountsOf(r, true)
}

func asTexts(r plimsoll.Resources) any {
	if len(r) == 0 {
		return nil
	}
	texts := map[string]string{}
	for name, amount := range amountsOf(r, true) {
		texts[name] = string(amount)
	}
	return texts
}

func queueFileOf(root *plimsoll.QueueConfig, form func(plimsoll.Resources) any) queueFile {
	return queueFile{[]partitionEntry{{Name: partitionName, Queues: []queueEntry{queueEntryOf(root, form)}}}}
}

func queueEntryOf(q *plimsoll.QueueConfig, form func(plimsoll.Resources) any) queueEntry {
	// A queue that holds queues is a parent implicitly, and root always is.
	f := queueEntry{
		Name: q.Name, Parent: q.Parent && len(q.Queues) == 0 && q.Name != plimsoll.RootQueue,
		MaxApplications: q.MaxJobs,
		MaxTasks:        q.MaxTasks,
	}
	if len(q.Guaranteed)+len(q.Max) > 0 {
		f.Resources = &queueResources{Guaranteed: form(q.Guaranteed), Max: form(q.Max)}
	}
	for i := range q.Queues {
		f.Queues = append(f.Queues, queueEntryOf(&q.Queues[i], form))
	}
	return f
}

// FileKind is the kind of a file: job, queue, placement or policy.
type FileKind uint8

// The kinds of file.
const (
	JobFileKind FileKind = iota + 1
	QueueFileKind
	PlacementFileKind
	PolicyFileKind
)

// placementKeys are the fields by which a placement file is recognized.
var placementKeys = []string{
	"chain", "define", "batch", "all", "maxInstances", "capness", "headnodes", "largeServers", "ownerSpread", "sickFor",
	"evictedFor", "strategy", "weights",
	"owners",
}

// Detect recognizes by its keys whether a file is a job file, a queue file, a placement file or a
// policy file. The error is a *Error.
func Detect(name string, data []byte) (FileKind, error) {
	docs, err := parseDocuments(name, data)
	if err != nil {
		return 0, err
	}
	if len(docs) > 0 && policyKind(docs[0]) != nil {
		return PolicyFileKind, nil
	}
	v, err := parseValue(name, data)
	if err != nil {
		return 0, err
	}
	for _, e := range v.entries {
		switch e.name {
		case "partitions":
			return QueueFileKind, nil
		case "job", "groups":
			return JobFileKind, nil
		}
	}
	if slices.ContainsFunc(v.entries, func(e entry) bool { return slices.Contains(placementKeys, e.name) }) {
		return PlacementFileKind, nil
	}
	msg := fmt.Sprintf("is neither a job file, a queue file, a placement file nor a policy file; a job file has job: and groups:, a queue file has "+
		"partitions:, a placement file has chain:, weights: or other settings, a policy file has kind: (this is %s)", v.kindName())
	return 0, newError(name, []Problem{{Line: v.line, Msg: msg}})
}
