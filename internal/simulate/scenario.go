package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Scenario is a black-box scenario of queue scheduling.
type Scenario struct {
	Name, Area, Shows string
	Queues            string // a queue file
	Steps             []Step
	Set               string
	// Better says why the expectation is a known weakness of the scheduler that was observed; it is
	// not binding then.
	Better string
}

// Step is one step of a scenario: exactly one field is set.
type Step struct {
	Node             *NodeStep
	Submit           *SubmitStep
	Add              *SubmitStep
	Finish           *FinishStep
	Kill             string
	Cordon, Uncordon string
	Remove           string
	Resize           *NodeStep
	External         *ExternalStep
	Reload           *ReloadStep
	Settle           bool
	Wait             string // a duration
	Expect           *Expectation
}

// NodeStep is a node that joins or changes; with a count N, the nodes id1 to idN.
type NodeStep struct {
	ID       string
	Count    int
	Capacity map[string]string
	Cordoned bool
}

// SubmitStep is a job, or further tasks for it.
type SubmitStep struct {
	Job, Queue, Owner string
	Groups            []string // of users
	Tags              map[string]string
	At                float64 // seconds
	Tasks             []TasksStep
	Gang              json.RawMessage
}

// TasksStep are equal tasks.
type TasksStep struct {
	Group     string
	Count     int32
	Resources map[string]string
	Priority  int32
	At        float64 // seconds from the base, at which they are asked for
	Node      string  // the only node for them
	Gang      string

	PreemptOther, PreemptSelf, Originator, Fresh bool // of scenarios that need preemption
}

// FinishStep ends running tasks with success, those with the lowest ids first.
type FinishStep struct {
	Job, Group string
	Count      int
}

// ExternalStep is a use of a node outside of the scheduler.
type ExternalStep struct {
	Node, ID  string
	Resources map[string]string
}

// ReloadStep is another queue file at run time.
type ReloadStep struct {
	Queues  string
	Refused bool // it must be refused and change nothing
}

// Expectation is compared with the state.
type Expectation struct {
	Jobs        map[string]JobExpectation
	Queues      map[string]string // exactly these exist: static, dynamic or draining
	Nodes       map[string]map[string]string
	NodesSorted []int64 // milli-cpu allocated by node, descending
	Together    *struct {
		Jobs    []string
		Running int32
	}
}

// JobExpectation states facts of a job. A field that is nil is not compared.
type JobExpectation struct {
	Running, Waiting        *int32
	Placeholders, Preempted *int32
	ByGroup                 map[string]int32 // running
	State, Queue            string
	Rejected, Gone          bool
}

// ParseScenarios reads a file of scenarios: a JSON list, read strictly. Its fields are described in
// docs/reference/scenario-file.md.
func ParseScenarios(data []byte) ([]Scenario, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var list []Scenario
	err := dec.Decode(&list)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("text follows the list")
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("it has no scenario")
	}
	if err != nil {
		return nil, plimsoll.Invalid("scenario", "cannot be read: %v; give one JSON list of scenarios", err)
	}
	twice, err := keyTwice(json.NewDecoder(bytes.NewReader(data)), false)
	if err != nil {
		return nil, plimsoll.Invalid("scenario", "cannot be read: %v", err)
	}
	if twice != nil {
		return nil, plimsoll.Invalid("scenario", "has %s twice; remove one", strings.Join(twice, "."))
	}
	names := map[string]bool{}
	for i := range list {
		s := &list[i]
		if s.Name == "" || names[s.Name] {
			return nil, plimsoll.Invalid(
				fmt.Sprintf("[%d].name", i), "%q is empty or stands twice; give each scenario its own name", s.Name,
			)
		}
		names[s.Name] = true
		for n := range s.Steps {
			if err := s.Steps[n].check(fmt.Sprintf("[%d].steps[%d]", i, n)); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// namesBelow are the fields whose keys are names that a file chooses. All other keys are fields,
// which package json takes in any case.
var namesBelow = []string{"capacity", "resources", "tags", "jobs", "bygroup", "queues", "nodes"}

// keyTwice returns the key that an object of the next JSON value has twice, behind the fields above
// it; nil: there is none. Package json would take the last one. named says that the keys are names.
func keyTwice(dec *json.Decoder, named bool) (path []string, err error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	for token == json.Delim('[') && dec.More() {
		if path, err = keyTwice(dec, false); path != nil || err != nil {
			return path, err
		}
	}
	seen := map[string]bool{}
	for token == json.Delim('{') && dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint(key)
		field := strings.ToLower(name)
		if !named {
			name = field
		}
		if seen[name] {
			return []string{plimsoll.Shorten(name)}, nil
		}
		seen[name] = true
		below, err := keyTwice(dec, !named && slices.Contains(namesBelow, field))
		if below != nil || err != nil {
			return append([]string{plimsoll.Shorten(name)}, below...), err
		}
	}
	if token == json.Delim('[') || token == json.Delim('{') {
		_, err = dec.Token() // its end
	}
	return nil, err
}

// maxNodes bounds the nodes of one step.
const maxNodes = 100_000

// maxSeconds bounds the times and spans of a scenario. It is some 30 years.
const maxSeconds = 1e9

// check refuses what could not be played as it is written. Names are checked as they are played.
func (s *Step) check(field string) error {
	kinds := reflect.ValueOf(*s)
	var given, all []string
	for i := range kinds.NumField() {
		kind := strings.ToLower(kinds.Type().Field(i).Name)
		if all = append(all, kind); !kinds.Field(i).IsZero() {
			given = append(given, kind)
		}
	}
	if len(given) != 1 {
		return plimsoll.Invalid(field, "has %d of the keys %s; give each step one", len(given), strings.Join(all, ", "))
	}
	if s.Wait != "" {
		d, err := time.ParseDuration(s.Wait)
		if err != nil || d < 0 || d > maxSeconds*time.Second {
			return plimsoll.Invalid(field+".wait", "is %q; give a time such as 30s or 2h", s.Wait)
		}
	}
	if n := s.Node; n != nil && (n.Count < 0 || n.Count > maxNodes) {
		return plimsoll.Invalid(field+".node.count", "is %d; give at most %d, or leave it out", n.Count, maxNodes)
	}
	if s.Resize != nil && (s.Resize.Count != 0 || s.Resize.Cordoned) {
		return plimsoll.Invalid(field+".resize", "has more than id and capacity; give these two")
	}
	if s.Finish != nil && s.Finish.Count < 1 {
		return plimsoll.Invalid(field+".finish.count", "is %d; give 1 or more", s.Finish.Count)
	}
	for _, asked := range []*SubmitStep{s.Submit, s.Add} {
		if asked == nil {
			continue
		}
		at := []float64{asked.At}
		for i := range asked.Tasks {
			at = append(at, asked.Tasks[i].At)
		}
		for _, t := range at {
			if t < -maxSeconds || t > maxSeconds {
				return plimsoll.Invalid(field+".at", "is %g; give seconds from -%g to %g", t, maxSeconds, maxSeconds)
			}
		}
	}
	return nil
}

// laterAreas are the areas of scenarios that need what is not built yet.
var laterAreas = []string{"gang", "preemption", "quota", "reservation"}

// NotYet returns what a scenario needs that is not built yet; empty: nothing.
func (s *Scenario) NotYet() string {
	if slices.Contains(laterAreas, s.Area) {
		return s.Area
	}
	for i := range s.Steps {
		for _, submit := range []*SubmitStep{s.Steps[i].Submit, s.Steps[i].Add} {
			if submit == nil {
				continue
			}
			ofGang := func(t TasksStep) bool { return t.Gang != "" }
			if len(submit.Gang) > 0 || slices.ContainsFunc(submit.Tasks, ofGang) {
				return "gang"
			}
		}
	}
	return ""
}

// resources reads amounts.
func resources(field string, texts map[string]string) (plimsoll.Resources, error) {
	r := plimsoll.Resources{}
	for _, name := range sortedKeys(texts) {
		amount, err := plimsoll.ParseQuantity(name, texts[name])
		if err != nil {
			return nil, plimsoll.Invalid(field+"."+name, "%v", err)
		}
		r[name] = amount
	}
	return r, nil
}
