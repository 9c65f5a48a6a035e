package config_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// filePlaces names the functions of this package that copy the fields of a type by hand.
var filePlaces = map[string]string{
	"Action":          "action, actionFile and actionFileOf in policy.go",
	"Constraints":     "constraints, constraintsFile and constraintsOf in placement.go",
	"EvictAction":     "action, evictFile and actionFileOf in policy.go",
	"FreezeAction":    "action, freezeFile and actionFileOf in policy.go",
	"GroupSpec":       "group, groupFile and JobFile in job.go",
	"JobSpec":         "ParseJob, jobFile and JobFile in job.go",
	"NodeQOS":         "nodeQOS, nodeQOSFile and nodeQOSFileOf in policy.go",
	"PlatformRange":   "constraints, platformFile and constraintsOf in placement.go",
	"Policy":          "policy and PolicyFile in policy.go",
	"Preferences":     "preferences, preferencesFile and preferencesOf in placement.go",
	"QOSOptions":      "qosOptions, qosOptionsFile and qosOptionsFileOf in policyoptions.go",
	"AccessList":      "access in queues.go, ParseAccessList and String",
	"NodeSort":        "nodeSort in queues.go, nodeSortEntry and nodeSortOf in queueprint.go",
	"PlacementRule":   "rule in queues.go, ruleEntry and ruleEntryOf in queueprint.go",
	"PartitionConfig": "partition in queues.go, partitionEntry and queueFileOf in queueprint.go",
	"QueueConfig":     "queue in queues.go, queueEntry and queueEntryOf in queueprint.go",
	"QueueLimit":      "limits in queues.go, limitEntry and queueEntryOf in queueprint.go",
	"QueueTemplate":   "template in queues.go, templateEntry and queueEntryOf in queueprint.go",
	"RuleFilter":      "filter in queues.go, filterEntry and ruleEntryOf in queueprint.go",
	"Requirement":     "taskQOS, requirementFile and taskQOSFileOf in policy.go",
	"RetryPolicy":     "retry, retryFile and JobFile in job.go",
	"Rule":            "nodeQOS, ruleFile and nodeQOSFileOf in policy.go",
	"Selector":        "selectors, selectorFile and selectorsOf in placement.go",
	"Spread":          "spreads, spreadFile, constraintsOf and preferencesOf in placement.go",
	"TaskQOS":         "taskQOS, taskQOSFile and taskQOSFileOf in policy.go",
	"ThrottleAction":  "action, throttleFile and actionFileOf in policy.go",
	"Trait":           "trait and TraitsFile in placement.go",
	"WeightAction":    "action, weightFile and actionFileOf in policy.go",
}

// file is the path of a type through a file. If some fields exclude each other, the variants
// together set every field.
type file[T any] struct {
	name     string
	print    func(*T) ([]byte, error)
	parse    func(data []byte) (T, error)
	options  fill.Options
	variants [][]string        // fields to leave out, for each variant
	lost     map[string]string // fields that are not part of the file, with the reason
}

func (f file[T]) test(t *testing.T) {
	left := map[string]int{}
	for _, leave := range f.variants {
		f.pass(t, leave)
		for _, rule := range leave {
			left[rule]++
		}
	}
	for rule, n := range left {
		if n == len(f.variants) {
			t.Errorf("%s stands in no variant of %s", rule, f.name)
		}
	}
}

func (f file[T]) pass(t *testing.T, leave []string) {
	t.Helper()
	o := f.options
	o.Leave = append(slices.Clone(o.Leave), leave...)
	var in T
	fill.Fill(&in, o)
	data, err := f.print(&in)
	if err != nil {
		t.Fatalf("%T is not printed as %s: %v", in, f.name, err)
	}
	out, err := f.parse(data)
	if err != nil {
		t.Errorf("%s is not read as it is printed; if only some values of a new field are possible, say so in "+
			"the options of this test: %v\n%s",
			f.name, err, data)
		return
	}
	found, stale := fill.Unexpected(fill.Differences(&in, &out), f.lost)
	for _, d := range found {
		t.Errorf("%s.%s is lost on its way through %s (%s: %s). It belongs into: %s; docs/reference",
			d.Type, d.Field, f.name, d.Path, d, filePlaces[d.Type])
	}
	for _, rule := range stale {
		t.Errorf("%s comes back through %s, although this test says that it does not; take that out", rule, f.name)
	}
}

// numbered puts the number of a field into a text, so that every text is different.
func numbered(format string) func(int) any { return func(n int) any { return fmt.Sprintf(format, n) } }

func always(value any) func(int) any { return func(int) any { return value } }

var jobFiles = file[plimsoll.JobSpec]{
	name: "a job file", print: config.FormatJob,
	parse: func(data []byte) (plimsoll.JobSpec, error) { return config.ParseJob("printed.yaml", data) },
	options: fill.Options{
		Values: map[string]func(int) any{
			"Queue":          numbered("root.s%d"),
			"Platform.Min{}": numbered("7.%d"),
			"Platform.Max{}": numbered("8.%d"),
			"Platform.Min[]": numbered("2%03d0101T000000Z"),
			"Platform.Max[]": numbered("2%03d0202T000000Z"),
			"VolumesFrom[]":  numbered("job.group.%d"),
			"Near[].Task":    numbered("near.group.%d"),
			"Far[].Task":     numbered("far.group.%d"),
			"Near[].Label":   numbered("near=%d"),
			"Far[].Label":    numbered("far=%d"),
			"Class":          always(plimsoll.ClassGuaranteed),
			"Groups[].Count": always(int32(2)), // the number of entries of a list
			"Constraints.Class": func(n int) any {
				return map[string]float64{"cpu": float64(n) + 0.5, "memory": 2}
			},
			"Resources": func(n int) any {
				return plimsoll.Resources{"cpu": int64(n), "memory": int64(n) << 20, "s1": int64(n)}
			},
		},
		OneOf: []string{"Near[]", "Far[]", "Traits[]"},
		Leave: []string{"Preferences.Spread[].MaxSkew"}, // a preference has no bound
	},
	variants: [][]string{nil, {"Groups[].Indexes"}}, // the count follows from indexes, if there are any
	lost: map[string]string{
		"Token":   "it is that of one submit; the client makes it",
		"AgainOf": "it says what was done, not what is to be done; plimsoll job run-again sets it",
	},
}

var queueFiles = file[plimsoll.QueueConfig]{ // a queue below root, because root has no fields of its own
	name: "a queue file",
	print: func(c *plimsoll.QueueConfig) ([]byte, error) {
		return config.FormatQueues(&plimsoll.QueueConfig{
			Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{*c},
		})
	},
	parse: func(data []byte) (plimsoll.QueueConfig, error) {
		root, err := config.ParseQueues("printed.yaml", data)
		if err != nil {
			return root, err
		}
		return root.Queues[0], nil
	},
	options: fill.Options{Values: map[string]func(int) any{
		"Guaranteed":          always(plimsoll.Resources{"cpu": 4, "s1": 4}),
		"Queues[].Guaranteed": always(plimsoll.Resources{"cpu": 1, "s1": 2}),
		"Max":                 always(plimsoll.Resources{"cpu": 40, "s1": 50}),
		"Queues[].Max":        always(plimsoll.Resources{"cpu": 10, "s1": 20}),
		"Limits[].Max":        always(plimsoll.Resources{"cpu": 9, "s1": 8}),
		"MaxJobs":             always(int32(7)),
		"Limits[].MaxJobs":    always(int32(5)),
	}, Leave: []string{"Dynamic", "Partition"}}, // a dynamic queue is made by a job; rootFiles has the other
	variants: [][]string{
		{"Everybody"},
		{"SubmitAccess.Users", "SubmitAccess.Groups", "AdminAccess.Users", "AdminAccess.Groups"},
	},
	lost: map[string]string{
		"Draining":          "the state says which queues go, not the user",
		"Queues[].Draining": "the state says which queues go, not the user",
	},
}

// rootFiles pass what a file says about the whole tree. The queue below root is that of a rule.
var rootFiles = file[plimsoll.PartitionConfig]{
	name: "a queue file's partition",
	print: func(c *plimsoll.PartitionConfig) ([]byte, error) {
		return config.FormatQueues(&plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Partition: c})
	},
	parse: func(data []byte) (plimsoll.PartitionConfig, error) {
		root, err := config.ParseQueues("printed.yaml", data)
		if err != nil {
			return plimsoll.PartitionConfig{}, err
		}
		return *root.Partition, nil
	},
	options:  fill.Options{Leave: []string{"Parent.Parent"}}, // it would be filled by half
	variants: [][]string{nil},
}

var policyFiles = file[plimsoll.Policy]{
	name: "a policy file",
	print: func(p *plimsoll.Policy) ([]byte, error) {
		return config.FormatPolicies([]plimsoll.Policy{*p})
	},
	parse: func(data []byte) (plimsoll.Policy, error) {
		policies, err := config.ParsePolicies("printed.yaml", data)
		if err != nil {
			return plimsoll.Policy{}, err
		}
		return policies[0], nil
	},
	options: fill.Options{Values: map[string]func(int) any{
		"Weight.Shares":     func(n int) any { return plimsoll.MinShares + int64(n) },
		"Waterline":         numbered("%d00"),
		"Release":           numbered("%d"),
		"Match[].Scope":     always(plimsoll.ScopeOwner),
		"Throttle.MinRatio": always(int32(30)),
		"Throttle.Step":     always(int32(20)),
		"Options.Stale":     always(7 * time.Second),
	}},
	variants: [][]string{
		{".TaskQOS", ".NodeQOS", "Action.Weight.Idle"},
		{".TaskQOS", ".NodeQOS", "Action.Weight.Shares"},
		{".Action", ".TaskQOS"},
		{".Action", ".NodeQOS", "TaskQOS.Avoid", "TaskQOS.Critical"},
		{".Action", ".NodeQOS", "TaskQOS.Prefer", "TaskQOS.Critical"},
		{".Action", ".NodeQOS", "TaskQOS.Prefer", "TaskQOS.Avoid", "TaskQOS.Allowed"},
	},
	lost: map[string]string{"Revision": "the state counts it"},
}

// TestEveryFieldPassesThroughAFile fills every field, prints it as a file and reads the file. A
// field that was added only to its type is lost on the way.
func TestEveryFieldPassesThroughAFile(t *testing.T) {
	t.Run("JobSpec", jobFiles.test)
	t.Run("QueueConfig", queueFiles.test)
	t.Run("PartitionConfig", rootFiles.test)
	t.Run("Policy", policyFiles.test)
}
